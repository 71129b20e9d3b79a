"""Penstock as a server: a manager that keeps pipelines, and one runner process for each that runs."""
