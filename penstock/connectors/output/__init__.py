"""Output connectors, one file each."""
