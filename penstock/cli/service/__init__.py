"""The commands that ask a service: what `penstock serve` serves."""

DEFAULT_URL = "http://127.0.0.1:8080"
