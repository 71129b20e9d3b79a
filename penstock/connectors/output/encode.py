"""Values of a view as text: what `file_input` would read back as the same value."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from typing import Any


def to_json(value: Any) -> Any:
    """A value as Arrow gives it -> what JSON can hold.

    >>> to_json({"price": decimal.Decimal("9.90"), "day": dt.date(2024, 5, 1)})
    {'price': '9.90', 'day': '2024-05-01'}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def to_cell(value: Any, delimiter: str) -> str:
    """A CSV cell: empty for NULL, quoted where it must be, JSON for arrays, maps and structs."""
    if value is None:
        return ""
    plain = to_json(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, (dict, list)):
        plain = json.dumps(plain, ensure_ascii=False)
    text = str(plain)
    if text == "" or any(character in text for character in f'"\r\n{delimiter}'):
        return '"' + text.replace('"', '""') + '"'
    return text
