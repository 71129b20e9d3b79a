"""Shards: durable collections of changes over times, which several writers and readers share."""
