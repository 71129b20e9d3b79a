"""How long a pipeline that was killed takes to come back, and what Structured Streaming takes."""
