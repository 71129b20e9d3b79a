"""The Spark session, the compiled circuit, and running a transaction."""
