"""Fields that are numbers, and those that are stored as numbers: dates, timestamps, intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors.input.datagen.chance import Words, unit, words
from penstock.connectors.input.datagen.domain import EXAMPLES, Domain, decimal_array, temporal
from penstock.connectors.input.datagen.field import Field, Generate
from penstock.connectors.input.datagen.numbers import Numbers, counted, scaled


def whole_numbers(field: Field) -> Generate:
    """Integers, and everything that is a count of days or milliseconds."""
    domain = Domain.of(field.kind)
    bounds = field.bounds(lambda bound: whole(field, domain, "range", bound))
    low, high = bounds or domain.default
    if bounds is None and field.counts_up:
        low = 0  # count from 0, not from the smallest number of the type
    numbers = _numbers(field, low, high, 1, domain.holds)
    return lambda rows: domain.array(numbers(rows), field.kind)


def whole(field: Field, domain: Domain, setting: str, found: Any) -> int:
    """A bound or value as a number of units: an integer, or the text of a date or time."""
    expected = EXAMPLES.get(field.type_name, "an integer")
    try:
        number = found if type(found) is int else temporal(found, field.kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise field.error(setting, f"{expected} for {field.type_name}", found) from error
    if not domain.least <= number <= domain.end:
        raise field.error(setting, f"{domain.least} to {domain.end} for {field.type_name}", found)
    return number


def decimals(field: Field) -> Generate:
    """Uniform over every number the scale can write; counting goes in whole units."""
    unscaled = 10**field.kind.scale
    limit = 10**field.kind.precision

    def parse(bound: Any) -> int:
        if type(bound) not in (int, float) or not math.isfinite(bound):
            raise field.error("range", "two numbers", bound)
        number: int = math.ceil(Fraction(repr(bound)) * unscaled)
        if abs(number) > limit:
            raise field.error("range", f"bounds for {field.type_name}", bound)
        return number

    bounds = field.bounds(parse)
    low, high = bounds or (0 if field.counts_up else 1 - limit, limit)
    numbers = _numbers(field, low, high, unscaled, lambda number: abs(number) < limit)
    return lambda rows: decimal_array(numbers(rows), field.kind)


def _numbers(field: Field, low: int, high: int, one: int, holds: Callable[[int], bool]) -> Numbers:
    """Counted or picked from [low, high). `one` is what 1 is written as: 100 for DECIMAL(p, 2)."""
    scale = field.settings.scale
    if field.counts_up:
        step = Fraction(repr(scale)) * one
        if step.denominator != 1:
            digits = len(str(one)) - 1
            expected = f"at most {digits} digits after the point" if digits else "an integer"
            raise field.error("scale", f"{expected} for {field.type_name}", scale)
        return counted(low, high, int(step))
    if not isinstance(scale, int):
        raise field.error("scale", f"an integer for {field.type_name} with {field.settings.strategy}", scale)
    if not (holds(low * scale) and holds((high - 1) * scale)):
        found = [low, high] if field.settings.range is None else list(field.settings.range)
        raise field.error("range", f"a range that does not exceed {field.type_name} times {scale}", found)
    return scaled(field.pick(high - low), low, high, scale)


def floats(field: Field) -> Generate:
    """FLOAT and DOUBLE."""
    store = field.kind.to_pandas_dtype()
    largest = float(np.finfo(store).max)
    scale, strategy = field.settings.scale, field.settings.strategy
    given = _float_range(field)
    low, high = given or (-largest, largest)
    if strategy != "increment" and max(abs(low), abs(high)) * abs(scale) > largest:
        raise field.error(
            "range", f"a range that does not exceed {field.type_name} times {scale}", [low, high]
        )
    start, size = (low, high - low) if given else (0.0, largest)
    last = np.nextafter(store(high), store(low))
    key = field.key("value")
    ranks = field.pick(max(math.ceil(min(size, 2.0**53)), 1))

    def numbers(rows: Words) -> Any:
        if strategy == "increment":
            return start + np.mod(rows.astype(np.float64) * scale, size)
        if strategy == "zipf":
            return (ranks(rows).astype(np.float64) + start) * scale
        part = unit(words(key, rows))
        return np.minimum((low * (1.0 - part) + high * part).astype(store), last) * store(scale)

    return lambda rows: pa.array(numbers(rows).astype(store))


def _float_range(field: Field) -> tuple[float, float] | None:
    given = field.settings.range
    if given is None:
        return None
    if (
        not all(type(bound) in (int, float) and abs(bound) <= 1e308 for bound in given)
        or not given[0] < given[1]
    ):
        raise field.error("range", "two numbers [a, b) with a < b", list(given))
    return float(given[0]), float(given[1])
