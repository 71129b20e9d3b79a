"""The oracle: a maintained view must equal Spark's own result over the current tables."""
