"""The `connectors` property: JSON text that lists the inputs of a table or the outputs of a view.

Only the shape is checked here. What a transport or a format makes of its `config` is known to that connector.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import ProgramError
from penstock.sql.cursor import Cursor
from penstock.sql.nearest import suggestion
from penstock.sql.program import Connector
from penstock.sql.properties import Property

_KEYS = (
    "name",
    "transport",
    "format",
    "enable_output_buffer",
    "index",
    "labels",
    "max_batch_size",
    "max_output_buffer_size_records",
    "max_output_buffer_time_millis",
    "max_queued_bytes",
    "max_queued_records",
    "max_worker_batch_size",
    "paused",
    "postprocessor",
    "preprocessor",
    "send_snapshot",
    "start_after",
)
_SHAPE = '[{"transport": {"name": ..., "config": {...}}, "format": {"name": ..., "config": {...}}}]'


def read_connectors(cursor: Cursor, relation: str, prop: Property) -> tuple[Connector, ...]:
    """The connectors that the property's JSON text lists, each with a name of its own."""
    entries = _load(cursor, prop)
    if not isinstance(entries, list):
        raise _bad(cursor, prop, f"expected a JSON list, {_SHAPE}")
    for index, entry in enumerate(entries):
        _check_entry(cursor, prop, f"connectors[{index}]", entry)
    return name_connectors(cursor, relation, prop, entries)


def name_connectors(
    cursor: Cursor, relation: str, prop: Property, entries: list[dict[str, Any]]
) -> tuple[Connector, ...]:
    """Connectors of entries; those without a name are `<relation>.<transport>`, then with `.2`, `.3` ..."""
    given = [entry["name"] for entry in entries if "name" in entry]
    for name in given:
        if given.count(name) > 1:
            raise _bad(cursor, prop, f"two connectors are called '{name}'; give each its own name")
    taken = set(given)
    return tuple(
        Connector(entry.get("name") or _free_name(relation, entry, taken), entry) for entry in entries
    )


def _free_name(relation: str, entry: dict[str, Any], taken: set[str]) -> str:
    base = name = f"{relation}.{entry['transport']['name']}"
    number = 1
    while name in taken:
        number += 1
        name = f"{base}.{number}"
    taken.add(name)
    return name


def _load(cursor: Cursor, prop: Property) -> Any:
    try:
        # Not strict: Spark has turned a \t of the SQL string into a tab before this is read as JSON.
        return json.loads(prop.literal.value, strict=False)
    except json.JSONDecodeError as cause:
        offset = prop.literal.offsets[cause.pos]
        hint = ""
        if "\\" in cursor.source.text[prop.literal.offsets[0] : offset]:
            hint = "; in an SQL string a backslash is written twice, or the string as r'...'"
        raise cursor.error(f"property 'connectors' is not valid JSON: {cause.msg}{hint}", offset) from cause


def _check_entry(cursor: Cursor, prop: Property, path: str, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise _bad(cursor, prop, f"{path}: expected a JSON object, {_SHAPE[1:-1]}")
    for key in entry:
        if key not in _KEYS:
            raise _bad(cursor, prop, f"{path}: unknown field '{key}'; {suggestion(key, _KEYS, 'fields')}")
    if "name" in entry:
        _check_name(cursor, prop, f"{path}.name", entry["name"])
    if "transport" not in entry:
        raise _bad(
            cursor, prop, f'{path}: no transport; expected "transport": {{"name": ..., "config": {{...}}}}'
        )
    _check_part(cursor, prop, f"{path}.transport", entry["transport"])
    if entry.get("format") is not None:
        _check_part(cursor, prop, f"{path}.format", entry["format"])


def _check_part(cursor: Cursor, prop: Property, path: str, part: Any) -> None:
    """Check a transport or a format: an object with a name and, if it needs one, a config."""
    if not isinstance(part, dict):
        raise _bad(cursor, prop, f'{path}: expected {{"name": ..., "config": {{...}}}}')
    for key in part:
        if key not in ("name", "config"):
            raise _bad(cursor, prop, f"{path}: unknown field '{key}'; expected name and config")
    _check_name(cursor, prop, f"{path}.name", part.get("name"))
    if not isinstance(part.get("config", {}), dict):
        raise _bad(cursor, prop, f"{path}.config: expected a JSON object")


def _check_name(cursor: Cursor, prop: Property, path: str, name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise _bad(cursor, prop, f"{path}: expected a name, found {json.dumps(name)}")


def _bad(cursor: Cursor, prop: Property, message: str) -> ProgramError:
    return cursor.error(f"property 'connectors': {message}", prop.literal.offsets[0])
