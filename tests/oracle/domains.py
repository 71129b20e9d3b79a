"""Random rows for the tables of tests/fixtures/sql: small domains, NULLs, NaN, -0.0, duplicates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

RowMaker = Callable[[Random], dict[str, Any]]

_NAN = float("nan")
_LETTERS = ("a", "b", "c", "B", " a ", "")
_DOUBLES = (_NAN, -0.0, 0.0, 1.5, -2.25, 0.1, 0.2, 7.0, 1234.5)
_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def _maybe(rng: Random, value: Any, chance: float = 0.15) -> Any:
    """The value, or NULL now and then."""
    return None if rng.random() < chance else value


def _day(rng: Random) -> date:
    return date(2024, 1, 1) + timedelta(days=rng.randrange(20))


def _instant(rng: Random) -> datetime:
    return _EPOCH + timedelta(minutes=15 * rng.randrange(900), microseconds=rng.choice((0, 0, 250)))


def _t(rng: Random) -> dict[str, Any]:
    return {
        "id": rng.randrange(1, 40),
        "k": _maybe(rng, rng.randrange(6)),
        "g": _maybe(rng, rng.choice(_LETTERS)),
        "n": _maybe(rng, rng.randrange(-2, 6)),
        "amount": _maybe(rng, Decimal(rng.randrange(-2000, 9000)) / 100),
        "x": _maybe(rng, rng.choice(_DOUBLES)),
        "d": _maybe(rng, _day(rng)),
        "ts": _maybe(rng, _instant(rng)),
    }


def _u(rng: Random) -> dict[str, Any]:
    return {
        "k": _maybe(rng, rng.randrange(5)),
        "g": _maybe(rng, rng.choice("abc")),
        "n": _maybe(rng, rng.randrange(5)),
        "x": _maybe(rng, rng.choice((_NAN, -0.0, 0.0, 0.1, 2.5))),
    }


def _v(rng: Random) -> dict[str, Any]:
    return {
        "k": _maybe(rng, rng.randrange(7), 0.1),
        "n": _maybe(rng, rng.randrange(5), 0.1),
        "h": _maybe(rng, rng.choice("pqr"), 0.1),
    }


def _emp(rng: Random) -> dict[str, Any]:
    number = rng.randrange(1, 13)
    return {
        "id": number,
        "manager_id": _maybe(rng, rng.randrange(1, number), 0.1) if number > 1 else None,
        "dept": _maybe(rng, rng.choice(("eng", "ops", "hr"))),
        "name": _maybe(rng, rng.choice(("Anna", "Ben", "Hannah", "Bo", "Nan")), 0.05),
        "salary": _maybe(rng, Decimal(rng.randrange(10, 60)) * 100),
        "hired": _maybe(rng, _day(rng)),
    }


def _typed(rng: Random) -> dict[str, Any]:
    def pair() -> dict[str, Any]:
        return {"a": _maybe(rng, rng.randrange(3)), "b": _maybe(rng, rng.choice("xy"))}

    return {
        "id": rng.randrange(1, 30),
        "bool": _maybe(rng, rng.random() < 0.5),
        "i8": _maybe(rng, rng.randrange(-2, 3)),
        "i16": _maybe(rng, rng.choice((-300, 0, 300))),
        "i32": _maybe(rng, rng.randrange(100)),
        "i64": _maybe(rng, rng.choice((-(2**40), 0, 7, 2**53 + 1))),
        "f32": _maybe(rng, rng.choice((_NAN, -0.0, 0.0, 0.5, -1.25, 8.0))),
        "f64": _maybe(rng, rng.choice((_NAN, -0.0, 0.0, 0.1, 0.5, -1.25, float("inf")))),
        "dec": _maybe(rng, Decimal(rng.randrange(-(10**12), 10**12, 10**10)) / 10000),
        "s": _maybe(rng, rng.choice(("", "12", "true", "2024-02-29", "na\u00efve", "a b&c"))),
        "bin": _maybe(rng, rng.choice((b"", b"\x00\xff", b"abc"))),
        "d": _maybe(rng, _day(rng)),
        "ts": _maybe(rng, _instant(rng)),
        "ntz": _maybe(rng, _instant(rng).replace(tzinfo=None)),
        "arr": _maybe(rng, [_maybe(rng, rng.randrange(1, 4)) for _ in range(rng.randrange(3))]),
        "m": _maybe(rng, {key: rng.randrange(3) for key in rng.sample("abc", rng.randrange(3))}),
        "st": _maybe(rng, pair()),
        "items": _maybe(rng, [pair() for _ in range(rng.randrange(3))]),
    }


ROW_MAKERS: Mapping[str, RowMaker] = {"t": _t, "u": _u, "v": _v, "emp": _emp, "typed": _typed}
