"""`USING csv OPTIONS (path '...')`, Spark's way to say that a table is read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.sql.cursor import Cursor
from penstock.sql.properties import Property
from penstock.sql.source import Token

# Spark's option -> the field of our format's config, for each format.
_FORMAT_OPTIONS: dict[str, dict[str, str]] = {
    "csv": {"header": "headers", "sep": "delimiter", "delimiter": "delimiter"},
    "json": {},
    "parquet": {},
}
# A file of Spark's has plain rows, where our JSON format also knows inserts and deletes.
_FORMAT_CONFIG: dict[str, dict[str, Any]] = {"csv": {}, "json": {"update_format": "raw"}, "parquet": {}}
_FILE_OPTIONS = ("path", "follow")


def check_provider(cursor: Cursor, provider: Token) -> None:
    """Refuse a data source that is not a file format; without a path, the format has no effect."""
    if provider.text.lower() not in _FORMAT_OPTIONS:
        message = f"USING {provider.text} is not supported; expected USING {', '.join(_FORMAT_OPTIONS)}"
        raise cursor.error(f"{message}, or a connector in WITH ('connectors' = '[...]')", provider)


def file_options(provider: Token | None, options: Sequence[Property]) -> list[Property]:
    """Those of the options that describe the file; the others are properties of the table."""
    if provider is None:
        return []
    known = (*_FILE_OPTIONS, *_FORMAT_OPTIONS[provider.text.lower()])
    return [option for option in options if option.key.lower() in known]


def file_connector(cursor: Cursor, provider: Token, options: Sequence[Property]) -> dict[str, Any]:
    """The entry of `connectors` that says the same as these options."""
    file_format = provider.text.lower()
    transport: dict[str, Any] = {}
    config = dict(_FORMAT_CONFIG[file_format])
    for option in options:
        key = option.key.lower()
        target = transport if key in _FILE_OPTIONS else config
        name = _FORMAT_OPTIONS[file_format].get(key, key)
        if name in target:
            raise cursor.error(f"option '{option.key}' is given twice", option.key_token)
        target[name] = _read_boolean(cursor, option) if key in ("follow", "header") else option.literal.value
    if "path" not in transport:
        raise cursor.error("the file is not named; expected the option path '...'", options[0].key_token)
    return {
        "transport": {"name": "file_input", "config": transport},
        "format": {"name": file_format, "config": config},
    }


def _read_boolean(cursor: Cursor, option: Property) -> bool:
    value = option.literal.value.lower()
    if value not in ("true", "false"):
        message = f"option '{option.key}' is '{option.literal.value}'; expected 'true' or 'false'"
        raise cursor.error(message, option.literal.offsets[0])
    return value == "true"
