"""Messages of Kafka into a view and out of it, beside Structured Streaming and a plain loop."""
