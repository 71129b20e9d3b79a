"""How a log is written: lines of text, or JSON, with times in UTC and without secrets."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from penstock.references import redacted

FORMS = ("text", "json")


def formatter(form: str) -> logging.Formatter:
    """The formatter of one of the `FORMS`."""
    return JsonLines() if form == "json" else Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")


class Lines(logging.Formatter):
    """A line of text, its time in UTC."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class JsonLines(Lines):
    """One JSON object for each line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line)
