"""The command line: `penstock run`, `penstock check`, `penstock explain`."""

from penstock.cli.app import app

__all__ = ["app"]
