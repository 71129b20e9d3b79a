"""The process that runs one pipeline, and answers for it over HTTP on this machine alone."""
