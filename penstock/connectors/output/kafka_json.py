"""JSON messages of `kafka_output`: one for each change.

`insert_delete`: `{"insert": {...}}` or `{"delete": {...}}`. `debezium`: `{"payload": {"op": "u", "before":
{...}, "after": {...}}}`. `raw`: the row under its key, and no value where the key is gone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.connectors.config import Section
from penstock.connectors.output.encode import to_json
from penstock.connectors.output.kafka_messages import (
    DELETE,
    Encoder,
    Message,
    by_kind,
    key_names,
    pieces,
    weights,
)
from penstock.connectors.output.keys import net_change
from penstock.errors import ConnectorError

INSERT_DELETE, DEBEZIUM, RAW = "insert_delete", "debezium", "raw"

_NULL = "null"


class JsonEncoder(Encoder):
    """Rows as JSON objects."""

    def __init__(self, name: str, update_format: str = INSERT_DELETE, key: Sequence[str] = ()) -> None:
        super().__init__(name, key)
        self._update_format = update_format

    @classmethod
    def of(cls, name: str, config: Section, key: Sequence[str] = ()) -> JsonEncoder:
        """`key`: columns that come from elsewhere than the format's own configuration."""
        config.only(["update_format", "array", "unique_keys", "key_fields"])
        update_format = config.choice("update_format", [INSERT_DELETE, DEBEZIUM, RAW], INSERT_DELETE)
        if config.get("array", bool, False):
            raise ConnectorError(f"{config.path}.array: cannot be true: every change is a message of its own")
        key = key_names(config) or key
        if update_format == RAW and not key:
            raise ConnectorError(
                f"{config.path}.update_format: 'raw' can tell that a row is gone only by its key; set"
                " 'unique_keys' to a list of columns that tell the rows of the view apart, or choose"
                " 'insert_delete'"
            )
        return cls(name, update_format, key)

    def messages(self, changes: pa.Table, where: str) -> Iterator[Message]:
        if self._update_format == RAW:
            return self._raw(changes, where)
        if self._update_format == DEBEZIUM and self.key:
            return self._updates(changes, where)
        return self._each(changes)

    def _each(self, changes: pa.Table) -> Iterator[Message]:
        """Every copy of every row by itself."""
        for kind, table in by_kind(changes):
            before, after = self._envelope(kind)
            for rows in pieces(table):
                keys = self._keys(rows)
                texts = json_objects(rows.select(self.columns))
                for key, text, weight in zip(keys, texts, weights(rows), strict=True):
                    message = (key, f"{before}{text}{after}".encode(), None)
                    yield message
                    for _ in range(weight - 1):
                        yield message

    def _envelope(self, kind: str) -> tuple[str, str]:
        if self._update_format == INSERT_DELETE:
            return f'{{"{kind}":', "}"
        if kind == DELETE:
            return '{"payload":{"op":"d","before":', ',"after":null}}'
        return '{"payload":{"op":"c","before":null,"after":', "}}"

    def _raw(self, changes: pa.Table, where: str) -> Iterator[Message]:
        net = net_change(changes, self.key, where)
        for rows in pieces(net.deletes):
            for key in self._keys(rows):
                yield key, None, None
        for rows in pieces(net.upserts):
            texts = json_objects(rows.select(self.columns))
            for key, text in zip(self._keys(rows), texts, strict=True):
                yield key, text.encode(), None

    def _updates(self, changes: pa.Table, where: str) -> Iterator[Message]:
        net = net_change(changes, self.key, where)
        before, after = self._envelope(DELETE)
        for rows in pieces(net.deletes):
            texts = json_objects(rows.select(self.columns))
            for key, text in zip(self._keys(rows), texts, strict=True):
                yield key, f"{before}{text}{after}".encode(), None
        replaced: dict[bytes | None, str] = {}
        if net.updates:
            gone = by_kind(changes)[0].table
            replaced = dict(zip(self._keys(gone), json_objects(gone.select(self.columns)), strict=True))
        for rows in pieces(net.upserts):
            texts = json_objects(rows.select(self.columns))
            for key, text in zip(self._keys(rows), texts, strict=True):
                old = replaced.get(key)
                op, was = ("c", _NULL) if old is None else ("u", old)
                yield key, f'{{"payload":{{"op":"{op}","before":{was},"after":{text}}}}}'.encode(), None

    def _keys(self, rows: pa.Table) -> list[bytes] | list[None]:
        if not self.key:
            return [None] * rows.num_rows
        return [text.encode() for text in json_objects(rows.select(self.key))]


def json_objects(rows: pa.Table) -> list[str]:
    """Each row as the text of a JSON object, with values as `to_json` has them.

    >>> json_objects(pa.table({"id": [1, None], "name": ['a "b"', "c"]}))
    ['{"id":1,"name":"a \\\\"b\\\\""}', '{"id":null,"name":"c"}']
    """
    names = (encode_basestring(name).replace("%", "%%") for name in rows.column_names)
    template = "{" + ",".join(f"{name}:%s" for name in names) + "}"
    return [template % values for values in zip(*(_texts(column) for column in rows.columns), strict=True)]


def _texts(column: pa.ChunkedArray) -> list[str]:
    """A column's values as JSON. By columns, for going through rows takes several times as long."""
    kind = column.type
    if pt.is_integer(kind) or pt.is_boolean(kind):
        return pc.fill_null(column.cast(pa.string()), _NULL).to_pylist()  # type: ignore[no-any-return]
    if pt.is_string(kind) or pt.is_large_string(kind):
        return [_NULL if value is None else encode_basestring(value) for value in column.to_pylist()]
    if pt.is_date(kind):
        return _quoted(column.cast(pa.string()))
    if pt.is_timestamp(kind) and kind.tz in (None, "UTC"):
        text = pc.replace_substring(column.cast(pa.timestamp("us", kind.tz)).cast(pa.string()), " ", "T")
        return _quoted(pc.replace_substring(text, ".000000", ""))
    if pt.is_decimal(kind):
        return [_NULL if value is None else f'"{value:f}"' for value in column.to_pylist()]
    if pt.is_floating(kind):
        return [_NULL if value is None else _number(value) for value in column.to_pylist()]
    return [_dumped(value) for value in column.to_pylist()]


def _quoted(texts: pa.ChunkedArray) -> list[str]:
    return [_NULL if text is None else f'"{text}"' for text in texts.to_pylist()]


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"))
