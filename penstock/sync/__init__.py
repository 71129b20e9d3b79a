"""Checkpoints in an object store: who may write there, push, pull, and letting old ones go."""
