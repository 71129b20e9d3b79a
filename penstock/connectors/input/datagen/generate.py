"""Field settings and a column's type -> a function from row indices to an Arrow array of values."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.connectors.input.datagen.chance import Origin, Words, below, words
from penstock.connectors.input.datagen.domain import Domain, first_of_each
from penstock.connectors.input.datagen.field import Field, Generate
from penstock.connectors.input.datagen.numeric import decimals, floats, whole, whole_numbers
from penstock.connectors.input.datagen.settings import NUMERIC, FieldSettings
from penstock.connectors.input.datagen.text import Repeats, random_bytes, text_strategy
from penstock.connectors.interface import INSERT, with_op
from penstock.connectors.misfit import BadValueError, is_variant
from penstock.connectors.values import to_array
from penstock.errors import ConnectorError

Batch = Callable[[Words], pa.RecordBatch]

_STRING_LENGTHS = (0, 25)
_ELEMENTS = (0, 5)


def plan_generator(config: Mapping[str, Any], schema: pa.Schema, origin: Origin, where: str) -> Batch:
    """The generator of one plan: row indices to a batch of the table's columns and `_op`."""
    columns = _fields(where, config, list(schema), "", origin)

    def make(rows: Words) -> pa.RecordBatch:
        arrays = [column(rows) for column in columns]
        return with_op(pa.RecordBatch.from_arrays(arrays, schema=schema), INSERT)

    return make


def _fields(
    where: str, config: Mapping[str, Any], fields: list[pa.Field], path: str, origin: Origin
) -> list[Generate]:
    """Generators of the columns of a table or the fields of a struct; those without settings count up."""
    declared = {field.name.lower(): field.name for field in fields}
    given: dict[str, Any] = {}
    for name, settings in config.items():
        if name.lower() not in declared:
            near = difflib.get_close_matches(name.lower(), declared, n=1)
            hint = (
                f"did you mean '{declared[near[0]]}'?" if near else f"known: {', '.join(declared.values())}"
            )
            raise ConnectorError(f"{where}: no column '{name}'; {hint}")
        if name.lower() in given:
            raise ConnectorError(f"{where}: expected each column once, found '{name}' in two spellings")
        given[name.lower()] = settings
    return [
        _generator(
            Field(
                FieldSettings.of(f"{where}.{field.name}", given.get(field.name.lower(), {})),
                field,
                f"{path}.{field.name.lower()}",
                origin,
            )
        )
        for field in fields
    ]


def _generator(field: Field) -> Generate:
    """With NULLs mixed in as the settings say."""
    _refuse_useless(field)
    percentage = field.settings.null_percentage
    if percentage and not field.column.nullable:
        raise field.error("null_percentage", "0, because the column is NOT NULL", percentage)
    values = _values(field)
    if not percentage:
        return values
    key = field.key("null")
    return lambda rows: _with_nulls(
        values(rows), pa.array(below(words(key, rows), 100) < np.uint64(percentage))
    )


def _with_nulls(values: pa.Array, null: pa.Array) -> pa.Array:
    """A struct that is NULL keeps what is inside, which may be NOT NULL."""
    if not pt.is_struct(values.type):
        return pc.if_else(null, pa.scalar(None, values.type), values)
    fields = [values.type.field(index) for index in range(values.type.num_fields)]
    children = [values.field(index) for index in range(len(fields))]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pc.or_(null, values.is_null()))


def _refuse_useless(field: Field) -> None:
    """Settings of what is inside a value, where nothing is inside."""
    kind = field.kind
    inside = ["value"] if pt.is_list(kind) else []
    if pt.is_map(kind):
        inside = ["key", "value"]
    if pt.is_struct(kind) and not is_variant(kind):
        inside = ["fields"]
    for name in ("fields", "key", "value"):
        if name not in inside and (found := field.settings.nested(name)):
            raise field.error(name, f"no such setting for {field.type_name}", found)


def _values(field: Field) -> Generate:
    kind = field.kind
    if field.settings.values is not None:
        return _from_list(field, field.settings.values)
    if is_variant(kind):
        return _variants(field)
    if field.settings.strategy not in NUMERIC:
        return _text(field)
    for fits, generator in _BY_TYPE:
        if fits(kind):
            return generator(field)
    return whole_numbers(field)


def _from_list(field: Field, choices: list[Any]) -> Generate:
    if (None in choices or not choices) and not field.column.nullable:
        raise field.error("values", "values, because the column is NOT NULL", choices)
    values = pa.concat_arrays([_choice(field, choice) for choice in choices or [None]])
    pick = field.pick(len(values))
    return lambda rows: values.take(pa.array(pick(rows)))


def _choice(field: Field, value: Any) -> pa.Array:
    """One of `values`. Dates, timestamps and intervals may be numbers, as in `range`."""
    if pt.is_temporal(field.kind) and (
        type(value) is int or (pt.is_duration(field.kind) and value is not None)
    ):
        domain = Domain.of(field.kind)
        return domain.array(np.array([whole(field, domain, "values", value)], dtype=np.int64), field.kind)
    try:
        return to_array([value], field.kind, text=True)
    except BadValueError as bad:
        raise ConnectorError(f"{field.settings.path}.values: {bad.value!r} {bad.reason}") from bad


def _text(field: Field) -> Generate:
    name = field.settings.strategy
    if not pt.is_string(field.kind):
        expected = f"{', '.join(NUMERIC)} for {field.type_name}; the others make text"
        raise ConnectorError(f"{field.settings.path}.strategy: expected {expected}, found {name!r}")
    bounds = field.counts((1, 2)) if field.settings.range else None
    return text_strategy(name, field.origin, field.path, bounds)


def _variants(field: Field) -> Generate:
    """Integers, or the text of a text strategy, one after the other: Spark has the encoder, not we."""
    inner = pa.int64() if field.settings.strategy in NUMERIC else pa.string()
    values = _values(Field(field.settings, pa.field("", inner), field.path, field.origin))
    return lambda rows: to_array(values(rows).to_pylist(), field.kind)


def _strings(field: Field) -> Generate:
    """STRING and BINARY."""
    if field.counts_up:
        return lambda rows: pa.array(rows).cast(pa.string()).cast(field.kind)
    low, high = field.counts(_STRING_LENGTHS)
    lengths, key = field.pick(high - low, "length"), field.key("text")
    return lambda rows: random_bytes(rows, lengths(rows) + np.uint64(low), high, key, field.kind)


def _booleans(field: Field) -> Generate:
    pick = field.pick(2)
    return lambda rows: pa.array(pick(rows) == np.uint64(1))


def _inside(field: Field, name: str, column: pa.Field) -> Generate:
    settings = FieldSettings.of(f"{field.settings.path}.{name}", field.settings.nested(name))
    return _generator(Field(settings, column, f"{field.path}.{name}", field.origin))


def _lists(field: Field) -> Generate:
    low, high = field.counts(_ELEMENTS)
    counts = field.pick(high - low, "count")
    element = _inside(field, "value", field.kind.value_field)

    def make(rows: Words) -> pa.Array:
        repeats = Repeats.of(rows, counts(rows) + np.uint64(low), high)
        return pa.ListArray.from_arrays(repeats.offsets, element(repeats.index), type=field.kind)

    return make


def _maps(field: Field) -> Generate:
    """A key that comes up twice in a row's map is kept once."""
    low, high = field.counts(_ELEMENTS)
    counts = field.pick(high - low, "count")
    key_maker = _inside(field, "key", field.kind.key_field)
    item_maker = _inside(field, "value", field.kind.item_field)

    def make(rows: Words) -> pa.Array:
        sizes = counts(rows) + np.uint64(low)
        repeats = Repeats.of(rows, sizes, high)
        keys = key_maker(repeats.index)
        owner = np.repeat(np.arange(len(rows)), sizes.astype(np.int64))
        kept = first_of_each(owner, keys)
        ends = np.cumsum(np.bincount(owner[kept], minlength=len(rows)))
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        chosen = pa.array(kept)
        return pa.MapArray.from_arrays(
            offsets, keys.take(chosen), item_maker(repeats.index).take(chosen), type=field.kind
        )

    return make


def _structs(field: Field) -> Generate:
    fields = [field.kind.field(index) for index in range(field.kind.num_fields)]
    where = f"{field.settings.path}.fields"
    makers = _fields(where, field.settings.fields, fields, field.path, field.origin)
    return lambda rows: pa.StructArray.from_arrays([maker(rows) for maker in makers], fields=fields)


_BY_TYPE: list[tuple[Callable[[pa.DataType], bool], Callable[[Field], Generate]]] = [
    (pt.is_string, _strings),
    (pt.is_binary, _strings),
    (pt.is_boolean, _booleans),
    (pt.is_floating, floats),
    (pt.is_decimal, decimals),
    (pt.is_map, _maps),
    (pt.is_list, _lists),
    (pt.is_struct, _structs),
]
