"""Where shards lie: a directory, a bucket, a database."""
