"""Input connectors and the readers of their splits, one file each."""
