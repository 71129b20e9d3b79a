"""How fast the service is, as its clients see it."""
