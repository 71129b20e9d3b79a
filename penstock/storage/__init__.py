"""Durable files: the one way anything reaches the disk."""
