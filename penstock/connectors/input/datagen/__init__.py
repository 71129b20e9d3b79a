"""`datagen`: made-up rows, the same for the same seed however they are split over tasks."""

from penstock.connectors.input.datagen.connector import SOURCE, DatagenInput, read_datagen

__all__ = ["SOURCE", "DatagenInput", "read_datagen"]
