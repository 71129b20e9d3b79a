"""What a checkpoint writes, what it costs transactions, and how long a cold start from it takes."""
