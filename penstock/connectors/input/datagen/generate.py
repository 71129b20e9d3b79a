"""Field settings and a column's type -> a function from row indices to an Arrow array of values."""

from __future__ import annotations

import decimal
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.connectors.input.datagen.chance import ALL, Floats, Words, below, stream, unit, words, zipf
from penstock.connectors.input.datagen.domain import (
    counting,
    decimal_array,
    first_of_each,
    temporal,
    whole_domain,
)
from penstock.connectors.input.datagen.settings import NUMERIC, FieldSettings
from penstock.connectors.input.datagen.text import Repeats, random_bytes, text_strategy
from penstock.connectors.interface import INSERT, with_op
from penstock.connectors.misfit import BadValueError, sql_name
from penstock.connectors.values import to_array
from penstock.errors import ConnectorError

Generate = Callable[[Words], pa.Array]
Batch = Callable[[Words], pa.RecordBatch]

_STRING_LENGTHS = (0, 25)
_ELEMENTS = (0, 5)


def plan_generator(config: Mapping[str, Any], schema: pa.Schema, seed: int, plan: int, where: str) -> Batch:
    """The generator of one plan: row indices to a batch of the table's columns and `_op`."""
    columns = _fields(where, config, list(schema), "", seed, plan)

    def make(rows: Words) -> pa.RecordBatch:
        arrays = [column(rows) for column in columns]
        return with_op(pa.RecordBatch.from_arrays(arrays, schema=schema), INSERT)

    return make


def _fields(
    where: str, config: Mapping[str, Any], fields: list[pa.Field], path: str, seed: int, plan: int
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
        given[name.lower()] = settings
    return [
        _Field(
            FieldSettings.of(f"{where}.{field.name}", given.get(field.name.lower(), {})),
            field,
            f"{path}.{field.name.lower()}",
            seed,
            plan,
        ).generator()
        for field in fields
    ]


@dataclass(frozen=True)
class _Field:
    """One field to generate: its settings, its type, and the path that its random streams derive from."""

    settings: FieldSettings
    field: pa.Field
    path: str
    seed: int
    plan: int

    @property
    def kind(self) -> pa.DataType:
        return self.field.type

    def generator(self) -> Generate:
        """With NULLs mixed in as the settings say."""
        percentage = self.settings.null_percentage
        if self.settings.values == []:
            percentage = 100
        if percentage and not self.field.nullable:
            raise self.error("null_percentage", "the column is NOT NULL", percentage)
        values = self._values()
        if not percentage:
            return values
        key = self.key("null")

        def make(rows: Words) -> pa.Array:
            keep = pa.array(below(words(key, rows), 100) >= np.uint64(percentage))
            return pc.if_else(keep, values(rows), pa.scalar(None, self.kind))

        return make

    def key(self, purpose: str) -> np.uint64:
        return stream(self.seed, self.plan, f"{self.path}/{purpose}")

    def error(self, setting: str, expected: str, found: Any) -> ConnectorError:
        return ConnectorError(f"{self.settings.path}.{setting}: {expected}, found {found!r}")

    def nested(self, name: str, config: Any, field: pa.Field) -> Generate:
        settings = FieldSettings.of(f"{self.settings.path}.{name}", config)
        return _Field(settings, field, f"{self.path}.{name}", self.seed, self.plan).generator()

    def _values(self) -> Generate:
        if self.settings.values is not None:
            return self._from_list(self.settings.values)
        if self.settings.strategy not in NUMERIC:
            return self._text_strategy()
        if pt.is_string(self.kind) or pt.is_binary(self.kind):
            return self._text_or_bytes()
        if pt.is_boolean(self.kind):
            pick = self.pick(2)
            return lambda rows: pa.array(pick(rows) == np.uint64(1))
        if pt.is_floating(self.kind):
            return self._floats()
        if pt.is_decimal(self.kind):
            return self._decimals()
        if pt.is_map(self.kind):
            return self._maps()
        if pt.is_list(self.kind):
            return self._lists()
        if pt.is_struct(self.kind):
            return self._structs()
        if pt.is_null(self.kind):
            return lambda rows: pa.nulls(len(rows))
        return self._whole_numbers()

    def pick(self, limit: int, purpose: str = "value") -> Callable[[Words], Words]:
        """Row indices to numbers from 0 to `limit - 1`, by the field's strategy."""
        key, strategy = self.key(purpose), self.settings.strategy
        if strategy == "increment":
            return lambda rows: rows % np.uint64(limit)
        if strategy == "zipf":
            ranks = zipf(limit, self.settings.exponent)
            return lambda rows: ranks(words(key, rows))
        return lambda rows: below(words(key, rows), limit)

    def _from_list(self, choices: list[Any]) -> Generate:
        try:
            values = to_array(choices, self.kind, text=True)
        except BadValueError as bad:
            raise ConnectorError(f"{self.settings.path}.values: {bad.value!r} {bad.reason}") from bad
        if not choices:
            return lambda rows: pa.nulls(len(rows), self.kind)
        pick = self.pick(len(choices))
        return lambda rows: values.take(pa.array(pick(rows)))

    def counts(self, default: tuple[int, int]) -> tuple[int, int]:
        """`range` as a length or number of elements."""
        low, high = self.settings.range or default
        if type(low) is not int or type(high) is not int or not 0 <= low < high:
            raise self.error("range", "expected two integers [a, b) with 0 <= a < b", [low, high])
        return low, high

    def _text_strategy(self) -> Generate:
        name = self.settings.strategy
        if not pt.is_string(self.kind):
            raise self.error("strategy", f"makes text, and the column is {sql_name(self.kind)}", name)
        bounds = self.counts((1, 2)) if self.settings.range else None
        return text_strategy(name, self.seed, self.plan, self.path, bounds)

    def _text_or_bytes(self) -> Generate:
        if self.settings.strategy == "increment":
            return lambda rows: pa.array(rows).cast(pa.string()).cast(self.kind)
        low, high = self.counts(_STRING_LENGTHS)
        lengths, key = self.pick(high - low, "length"), self.key("text")
        return lambda rows: random_bytes(rows, lengths(rows) + np.uint64(low), high, key, self.kind)

    def _whole_numbers(self) -> Generate:
        """Integers, and everything that is a count of days or milliseconds."""
        default, unit_size, store = whole_domain(self.kind)
        bounds = self.bounds(self._whole)
        low, high = bounds or default
        if bounds is None and pt.is_integer(self.kind) and self.settings.strategy == "increment":
            low = 0  # count from 0, not from the smallest number of the type
        largest = 2 ** (store.bit_width - 1) // unit_size
        first, offset = self._offsets(low, high, 1, largest)

        def make(rows: Words) -> pa.Array:
            numbers = (offset(rows) + np.int64(first)) * np.int64(unit_size)
            return pa.array(numbers.astype(store.to_pandas_dtype())).cast(self.kind)

        return make

    def _offsets(
        self, low: int, high: int, unscaled: int, largest: int
    ) -> tuple[int, Callable[[Words], Any]]:
        """The first number, and how far each row is from it: counted in steps, or picked and multiplied.

        `unscaled` is what 1 is written as: 1 for integers, 100 for DECIMAL(p, 2).
        """
        scale = self.settings.scale
        if self.settings.strategy == "increment":
            return low, counting(round(scale * unscaled), high - low)
        if not isinstance(scale, int):
            raise self.error("scale", "expected an integer", scale)
        if any(not -largest <= number * scale < largest for number in (low, high - 1)):
            raise self.error("range", f"exceeds {sql_name(self.kind)} after scaling", self.settings.range)
        picked = self.pick(high - low)
        return low * scale, lambda rows: picked(rows).astype(np.int64) * np.int64(scale)

    def bounds(self, parse: Callable[[Any], int]) -> tuple[int, int] | None:
        if self.settings.range is None:
            return None
        low, high = (parse(bound) for bound in self.settings.range)
        if not low < high:
            raise self.error("range", "expected [a, b) with a < b", list(self.settings.range))
        if not self.settings.strategy == "increment" and high - low > ALL:
            raise self.error("range", "expected less than 2^64 values", list(self.settings.range))
        return low, high

    def _whole(self, bound: Any) -> int:
        """A bound of `range`: an integer, or text for dates and times."""
        try:
            number = bound if type(bound) is int else temporal(bound, self.kind)
        except (ValueError, TypeError) as error:
            raise self.error("range", f"expected bounds for {sql_name(self.kind)}", bound) from error
        _, unit_size, store = whole_domain(self.kind)
        if abs(number * unit_size) > 2 ** (store.bit_width - 1):
            raise self.error("range", f"is out of range for {sql_name(self.kind)}", bound)
        return number

    def _decimals(self) -> Generate:
        """Uniform over every number the scale can write; counting goes in whole units."""
        unscaled = 10**self.kind.scale
        limit = 10 ** min(self.kind.precision, 18)

        def parse(bound: Any) -> int:
            if type(bound) not in (int, float):
                raise self.error("range", "expected two numbers", bound)
            number = int(decimal.Decimal(repr(bound)) * unscaled)
            if abs(number) > limit:
                raise self.error("range", f"expected at most {min(self.kind.precision, 18)} digits", bound)
            return number

        bounds = self.bounds(parse)
        low, high = bounds or (-limit + 1, limit)
        if bounds is None and self.settings.strategy == "increment":
            low = 0
        first, offset = self._offsets(low, high, unscaled, limit)
        return lambda rows: decimal_array(offset(rows) + np.int64(first), self.kind)

    def _floats(self) -> Generate:
        store = self.kind.to_pandas_dtype()
        largest = float(np.finfo(store).max)
        given = self.settings.range
        if given is not None and (not all(type(b) in (int, float) for b in given) or not given[0] < given[1]):
            raise self.error("range", "expected two numbers [a, b) with a < b", list(given))
        low, high = (float(given[0]), float(given[1])) if given else (-largest, largest)
        scale, strategy, key = self.settings.scale, self.settings.strategy, self.key("value")
        start, size = (low, high - low) if given else (0.0, largest)
        ranks = self.pick(max(int(min(size, 2.0**53)), 1))

        def numbers(rows: Words) -> Floats:
            if strategy == "increment":
                return start + np.fmod(rows.astype(np.float64) * scale, size)
            if strategy == "zipf":
                return (ranks(rows).astype(np.float64) + start) * scale
            part = unit(words(key, rows))
            return (low * (1.0 - part) + high * part) * scale

        return lambda rows: pa.array(numbers(rows).astype(store))

    def _lists(self) -> Generate:
        low, high = self.counts(_ELEMENTS)
        counts = self.pick(high - low, "count")
        element = self.nested("value", self.settings.value, self.kind.value_field)

        def make(rows: Words) -> pa.Array:
            repeats = Repeats.of(rows, counts(rows) + np.uint64(low), high)
            return pa.ListArray.from_arrays(repeats.offsets, element(repeats.index), type=self.kind)

        return make

    def _maps(self) -> Generate:
        """A key that comes up twice in a row's map is kept once."""
        low, high = self.counts(_ELEMENTS)
        counts = self.pick(high - low, "count")
        key_maker = self.nested("key", self.settings.key, self.kind.key_field)
        item_maker = self.nested("value", self.settings.value, self.kind.item_field)

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
                offsets, keys.take(chosen), item_maker(repeats.index).take(chosen), type=self.kind
            )

        return make

    def _structs(self) -> Generate:
        fields = [self.kind.field(index) for index in range(self.kind.num_fields)]
        where = f"{self.settings.path}.fields"
        makers = _fields(where, self.settings.fields, fields, self.path, self.seed, self.plan)
        return lambda rows: pa.StructArray.from_arrays([maker(rows) for maker in makers], fields=fields)
