"""Keeps pipelines in a database, a process for each that runs, and answers requests about both."""
