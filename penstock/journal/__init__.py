"""The durable record of what went into each transaction, and of how each one ended."""
