"""Checkpoints: a named, complete and checked set of batches and state files at a transaction boundary."""
