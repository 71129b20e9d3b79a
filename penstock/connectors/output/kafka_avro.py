"""Avro messages of `kafka_output`: the row, under its key or with a header `op` that says what became of it.

With a schema registry a message begins with a zero byte and the number of its schema (Confluent's wire
format), without one it is the datum alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.types as pt
from fastavro.schema import SchemaParseException

from penstock.connectors.config import Section
from penstock.connectors.misfit import is_variant, sql_name
from penstock.connectors.output.avro_rows import avro_rows, datum
from penstock.connectors.output.kafka_messages import (
    DELETE,
    INSERT,
    Encoder,
    Message,
    by_kind,
    key_names,
    pieces,
    weights,
)
from penstock.connectors.output.keys import net_change
from penstock.connectors.schema_registry import FIELDS, SchemaRegistry
from penstock.errors import ConnectorError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SIMPLE: Mapping[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}
_FITS: Mapping[str, tuple[str, ...]] = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "enum"),
    "timestamp-micros": ("timestamp-micros", "timestamp-millis"),
    "local-timestamp-micros": ("local-timestamp-micros", "local-timestamp-millis"),
}
"""What a column is -> what a given schema may have for it, where that is more than the same."""


@dataclass(frozen=True)
class _Writer:
    """Writes rows as data of one schema."""

    schema: Any
    prefix: bytes
    derived: bool
    """Whether the schema was made of the columns: then it is known how they lie."""

    def write(self, rows: pa.Table) -> list[bytes]:
        if self.derived:
            data = avro_rows(rows, self.schema)
        else:
            data = [datum(row, self.schema) for row in rows.to_pylist(maps_as_pydicts="strict")]
        return [self.prefix + one for one in data] if self.prefix else data


class AvroEncoder(Encoder):
    """Rows as Avro records."""

    def __init__(
        self,
        name: str,
        topic: str,
        record: str,
        *,
        schema: Any = None,
        registry: SchemaRegistry | None = None,
        key: Sequence[str] = (),
    ) -> None:
        super().__init__(name, key)
        self.op_header = not key
        self._topic = topic
        self._record = record if _NAME.fullmatch(record) else "row"
        self._schema = schema
        self._registry = registry
        self._row: _Writer | None = None
        self._key: _Writer | None = None

    @classmethod
    def of(cls, name: str, config: Section, topic: str, record: str, key: Sequence[str] = ()) -> AvroEncoder:
        """`record`: its name; `key`: columns that come from elsewhere than the format's own configuration."""
        config.only(["schema", "update_format", "skip_schema_id", "unique_keys", "key_fields", *FIELDS])
        config.choice("update_format", ["raw"], "raw")
        registry = SchemaRegistry.of(config)
        skip = config.get("skip_schema_id", bool, False)
        if registry is not None and skip:
            raise ConnectorError(f"{config.path}.skip_schema_id: cannot be true with 'registry_urls'")
        if registry is None and not skip:
            raise ConnectorError(
                f"{config.path}: messages begin with the number that a schema registry gave their schema: set"
                " 'registry_urls'; for messages without it set 'skip_schema_id' to true"
            )
        return cls(
            name,
            topic,
            record,
            schema=_given(config),
            registry=registry,
            key=key_names(config) or key,
        )

    def open(self, schema: pa.Schema) -> None:
        super().open(schema)
        derived = self._derived(schema, self._record)
        if self._schema is not None:
            _check(self._schema, derived, f"connector {self.name}: the Avro schema")
        if self._schema is None:
            self._row = _Writer(derived, self._prefix(derived, "value"), derived=True)
        else:
            prefix = self._prefix(self._schema, "value")
            self._row = _Writer(fastavro.parse_schema(self._schema), prefix, derived=False)
        if self.key:
            keys = self._derived([schema.field(name) for name in self.key], f"{self._record}_key")
            self._key = _Writer(keys, self._prefix(keys, "key"), derived=True)

    def messages(self, changes: pa.Table, where: str) -> Iterator[Message]:
        try:
            yield from self._keyed(changes, where) if self.key else self._each(changes)
        except (ValueError, TypeError, OverflowError) as error:
            raise ConnectorError(f"{where}: a row does not fit the Avro schema: {error}") from error

    def _each(self, changes: pa.Table) -> Iterator[Message]:
        assert self._row is not None, "messages come after open"
        for kind, table in by_kind(changes):
            op = DELETE if kind == DELETE else INSERT
            for rows in pieces(table):
                data = self._row.write(rows.select(self.columns))
                for value, weight in zip(data, weights(rows), strict=True):
                    for _ in range(weight):
                        yield None, value, op

    def _keyed(self, changes: pa.Table, where: str) -> Iterator[Message]:
        assert self._row is not None, "messages come after open"
        assert self._key is not None, "messages come after open"
        net = net_change(changes, self.key, where)
        for rows in pieces(net.deletes):
            for key in self._key.write(rows.select(self.key)):
                yield key, None, None
        for rows in pieces(net.upserts):
            keys, data = self._key.write(rows.select(self.key)), self._row.write(rows.select(self.columns))
            for key, value in zip(keys, data, strict=True):
                yield key, value, None

    # -- schemas --------------------------------------------------------------------------------

    def _prefix(self, schema: Any, part: str) -> bytes:
        """What messages with this schema begin with."""
        if self._registry is None:
            return b""
        number = self._registry.register(f"{self._topic}-{part}", schema)
        return b"\x00" + number.to_bytes(4, "big")

    def _derived(self, columns: Sequence[pa.Field], name: str) -> dict[str, Any]:
        return {
            "type": "record",
            "name": name,
            "fields": [self._field(column, f"{name}_{column.name}") for column in columns],
        }

    def _field(self, column: pa.Field, path: str) -> dict[str, Any]:
        if not _NAME.fullmatch(column.name):
            raise ConnectorError(
                f"connector {self.name}: Avro has no fields called '{column.name}': a name has letters,"
                " digits and underscores; rename the column in the view"
            )
        kind = self._type(column.type, path)
        if not column.nullable:
            return {"name": column.name, "type": kind}
        return {"name": column.name, "type": ["null", kind], "default": None}

    def _type(self, kind: pa.DataType, path: str) -> Any:
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if pt.is_timestamp(kind):
            logical = "local-timestamp-micros" if kind.tz is None else "timestamp-micros"
            return {"type": "long", "logicalType": logical}
        if pt.is_decimal(kind):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        if pt.is_map(kind) and pt.is_string(kind.key_type):
            return {"type": "map", "values": ["null", self._type(kind.item_type, f"{path}_value")]}
        if pt.is_list(kind) or pt.is_large_list(kind):
            return {"type": "array", "items": ["null", self._type(kind.value_type, f"{path}_item")]}
        if pt.is_struct(kind) and not is_variant(kind):
            return self._derived([kind.field(i) for i in range(kind.num_fields)], path)
        raise ConnectorError(
            f"connector {self.name}: Avro has no type for {sql_name(kind)}; cast the column in the view, to"
            " STRING for one"
        )


def _given(config: Section) -> Any:
    """The field `schema`, if it is there."""
    text = config.optional("schema", str)
    if text is None:
        return None
    try:
        schema = json.loads(text)
        fastavro.parse_schema(schema)
    except (ValueError, SchemaParseException) as error:
        raise ConnectorError(f"{config.path}.schema: not an Avro schema as JSON text: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConnectorError(f"{config.path}.schema: expected the schema of a record")
    return schema


def _check(given: Mapping[str, Any], derived: Mapping[str, Any], where: str) -> None:
    """Refuse a schema that rows of the view cannot have: each of its fields must be a column or have a
    default, and each column a field."""
    fields = {field["name"]: field for field in given["fields"]}
    columns = {field["name"]: field for field in derived["fields"]}
    if missing := [name for name in columns if name not in fields]:
        raise ConnectorError(
            f"{where} has no field for the column{_plural(missing)}; names are compared exactly"
        )
    for name, field in fields.items():
        if name in columns:
            _check_type(field["type"], columns[name]["type"], f"{where}: the field '{name}'")
        elif "default" not in field:
            raise ConnectorError(
                f"{where} has the field '{name}', which is no column of the view and has no default"
            )


def _check_type(given: Any, derived: Any, where: str) -> None:
    wanted = _kind(_alternatives(derived)[0])
    found = [_kind(alternative) for alternative in _alternatives(given)]
    allowed = _FITS.get(wanted, (wanted,))
    # A type that was named before is not looked up: fastavro refuses a row that does not fit it.
    known = {
        *_FITS,
        *(kind for kinds in _FITS.values() for kind in kinds),
        "boolean",
        "double",
        "bytes",
        "date",
    }
    known |= {"decimal", "array", "map", "record", "fixed", "time-millis", "time-micros", "uuid"}
    if not any(kind in allowed or kind not in known for kind in found):
        raise ConnectorError(f"{where} is {' or '.join(found)}, and the column needs {' or '.join(allowed)}")


def _alternatives(schema: Any) -> list[Any]:
    """The types of a union, without null."""
    return [kind for kind in schema if kind != "null"] if isinstance(schema, list) else [schema]


def _kind(schema: Any) -> str:
    if isinstance(schema, Mapping):
        return str(schema.get("logicalType") or schema["type"])
    return str(schema)


def _plural(names: Sequence[str]) -> str:
    return f"{'s' if len(names) > 1 else ''} {', '.join(names)}"
