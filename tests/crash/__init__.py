"""Processes that are killed and started again."""
