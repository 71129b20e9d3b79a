"""Queue input, run transactions one after another, deliver what changed."""
