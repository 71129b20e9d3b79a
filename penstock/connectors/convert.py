"""One Python value to what Arrow takes for a type, or the reason why it does not fit.

No silent conversion between kinds: a bool is not an integer, text is not a number.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.connectors.misfit import MISFITS, BadValueError, is_variant, sql_name, wrong_kind
from penstock.connectors.text import parse_text

Convert = Callable[[Any], Any]


def converter(kind: pa.DataType, *, text: bool = False) -> Convert:
    """A function from one value (not None) to what Arrow takes for `kind`; raises `BadValueError`."""
    if pt.is_boolean(kind):
        return _instance_of(kind, (bool, np.bool_))
    if pt.is_integer(kind):
        return _integer(kind)
    if pt.is_floating(kind):
        return _floating(kind, text=text)
    if pt.is_string(kind):
        return _string(kind)
    if pt.is_map(kind):
        return _map(kind, text=text)
    if pt.is_list(kind):
        return _list(kind, text=text)
    if pt.is_struct(kind):
        return _variant if is_variant(kind) else _struct(kind, text=text)
    scalar = _written_as_text(kind)
    return _parsed(kind, scalar) if text else scalar


def _written_as_text(kind: pa.DataType) -> Convert:
    if pt.is_decimal(kind):
        return _decimal(kind)
    if pt.is_timestamp(kind):
        return _timestamp(kind)
    if pt.is_date(kind):
        return _date(kind)
    if pt.is_binary(kind):
        return _instance_of(kind, (bytes, bytearray, memoryview))
    if pt.is_duration(kind):
        return _instance_of(kind, (dt.timedelta,))
    return lambda value: value


def _instance_of(kind: pa.DataType, accepted: tuple[type, ...]) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, accepted):
            raise wrong_kind(value, kind)
        return value

    return convert


def _integer(kind: pa.DataType) -> Convert:
    high = 2 ** (kind.bit_width - 1)

    def convert(value: Any) -> int:
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise wrong_kind(value, kind)
        if not -high <= value < high:
            raise BadValueError(f"is out of range for {sql_name(kind)} ({-high} to {high - 1})", value)
        return int(value)

    return convert


_NUMBERS = (float, int, np.floating, np.integer, decimal.Decimal)
_FLOAT_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _floating(kind: pa.DataType, *, text: bool) -> Convert:
    largest = float(np.finfo(kind.to_pandas_dtype()).max)

    def convert(value: Any) -> float:
        if text and isinstance(value, str) and value in _FLOAT_WORDS:
            return _FLOAT_WORDS[value]
        if not isinstance(value, _NUMBERS) or isinstance(value, bool):
            raise wrong_kind(value, kind)
        try:
            number = float(value)
        except OverflowError:
            raise BadValueError(f"is out of range for {sql_name(kind)}", value) from None
        if abs(number) > largest and not math.isinf(number):
            raise BadValueError(f"is out of range for {sql_name(kind)}", value)
        return number

    return convert


def _string(kind: pa.DataType) -> Convert:
    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise wrong_kind(value, kind)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadValueError("is not valid Unicode text", value) from None
        return value

    return convert


def _decimal(kind: pa.DataType) -> Convert:
    exact = decimal.Context(prec=decimal.MAX_PREC, traps=[decimal.InvalidOperation, decimal.Inexact])
    quantum = decimal.Decimal(1).scaleb(-kind.scale)
    limit = decimal.Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> decimal.Decimal:
        if isinstance(value, (float, np.floating)):
            number = decimal.Decimal(repr(float(value)))  # the digits a person sees, not the binary expansion
        elif isinstance(value, (int, np.integer, decimal.Decimal)) and not isinstance(value, bool):
            number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(int(value))
        else:
            raise wrong_kind(value, kind)
        if not number.is_finite():
            raise BadValueError(f"is not a number that {sql_name(kind)} can hold", value)
        if abs(number) >= limit:
            raise BadValueError(f"is out of range for {sql_name(kind)}", value)
        try:
            return number.quantize(quantum, context=exact)
        except decimal.Inexact:
            raise BadValueError(
                f"has more than {kind.scale} digits after the point: {sql_name(kind)}", value
            ) from None

    return convert


def _timestamp(kind: pa.DataType) -> Convert:
    def convert(value: Any) -> dt.datetime:
        if not isinstance(value, dt.datetime):
            raise wrong_kind(value, kind)
        moment: dt.datetime = value
        to_python = getattr(value, "to_pydatetime", None)
        if to_python is not None:  # pandas: a datetime with more digits than Spark keeps
            moment = to_python(warn=False)
        if kind.tz is None and moment.tzinfo is not None:
            raise BadValueError("has a time zone, and TIMESTAMP_NTZ has none", value)
        try:
            return moment if moment.tzinfo is None else moment.astimezone(dt.UTC)
        except OverflowError:
            raise BadValueError("is out of range for TIMESTAMP", value) from None

    return convert


def _date(kind: pa.DataType) -> Convert:
    def convert(value: Any) -> dt.date:
        if not isinstance(value, dt.date):
            raise wrong_kind(value, kind)
        if isinstance(value, dt.datetime):
            raise BadValueError("is a datetime, expected DATE; use its .date()", value)
        return value

    return convert


def _parsed(kind: pa.DataType, otherwise: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            if not pt.is_decimal(kind):
                raise wrong_kind(value, kind)
            return otherwise(value)
        try:
            return parse_text(pa.array([value]), kind)[0].as_py()
        except MISFITS:
            raise BadValueError(f"cannot be read as {sql_name(kind)}", value) from None

    return convert


def _nested(field: pa.Field, *, text: bool) -> Callable[[Any, str], Any]:
    """Convert a value inside a list, map or struct, naming its place if it does not fit."""
    inner = converter(field.type, text=text)

    def convert(value: Any, place: str) -> Any:
        if value is None:
            if field.nullable:
                return None
            raise BadValueError("is NULL, which the type does not allow here", None, where=place)
        try:
            return inner(value)
        except BadValueError as bad:
            raise bad.inside(place) from None

    return convert


def _list(kind: pa.DataType, *, text: bool) -> Convert:
    element = _nested(kind.value_field, text=text)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise wrong_kind(value, kind)
        return [element(item, f"[{index}]") for index, item in enumerate(value)]

    return convert


def _map(kind: pa.DataType, *, text: bool) -> Convert:
    key, item = _nested(kind.key_field, text=text), _nested(kind.item_field, text=text)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, Mapping):
            pairs = list(value.items())
        elif isinstance(value, (list, tuple)) and all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value
        ):
            pairs = [(pair[0], pair[1]) for pair in value]
        else:
            raise wrong_kind(value, kind)
        return [(key(k, f"[{k!r}]"), item(v, f"[{k!r}]")) for k, v in pairs]

    return convert


def _struct(kind: pa.DataType, *, text: bool) -> Convert:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    inner = [(field.name, _nested(field, text=text)) for field in fields]
    spelled = {field.name.lower(): field.name for field in fields}

    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            given: dict[str, Any] = {}
            for name, item in value.items():
                field = spelled.get(str(name).lower())
                if field is None:
                    raise BadValueError(f"has a field '{name}', unknown to {sql_name(kind)}", value)
                given[field] = item
        elif isinstance(value, (list, tuple)) and len(value) == len(fields):
            given = {field.name: item for field, item in zip(fields, value, strict=True)}
        else:
            raise wrong_kind(value, kind)
        return {name: convert_field(given.get(name), f".{name}") for name, convert_field in inner}

    return convert


def _variant(value: Any) -> dict[str, bytes]:
    from pyspark.sql.types import VariantVal

    try:
        text = None if isinstance(value, VariantVal) else json.dumps(value, default=float)
    except (TypeError, ValueError):
        raise BadValueError("cannot be written as JSON, expected VARIANT", value) from None
    variant = value if text is None else VariantVal.parseJson(text)
    return {"value": variant.value, "metadata": variant.metadata}
