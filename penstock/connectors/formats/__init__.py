"""Formats of files: bytes to batches of a table's columns, one file each."""
