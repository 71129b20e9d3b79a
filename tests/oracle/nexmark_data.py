"""Random rows of Nexmark's online auction, within two minutes, so that its windows hold several."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.oracle.domains import RowMaker

PEOPLE, AUCTIONS = 20, 30

_OPENING = datetime(2024, 5, 1, 7, 59, tzinfo=UTC)
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "channel-1", "channel-2")
_EXTRAS = ("", "abc", "ccc", "[MNM`IXc")


def _moment(rng: Random) -> datetime:
    return _OPENING + timedelta(milliseconds=250 * rng.randrange(480))


def _person(rng: Random) -> dict[str, Any]:
    number = rng.randrange(PEOPLE)
    return {
        "id": number,
        "name": rng.choice(("Peter Jones", "Kate Smith", "Vicky Noris")),
        "email_address": f"user{number}@example.com",
        "credit_card": f"{rng.randrange(10**4):04d} {rng.randrange(10**4):04d}",
        "city": rng.choice(("Phoenix", "Portland", "Boise")),
        "state": rng.choice(("AZ", "OR", "ID", "CA", None)),
        "date_time": _moment(rng),
        "extra": rng.choice(_EXTRAS),
    }


def _auction(rng: Random) -> dict[str, Any]:
    opened = _moment(rng)
    return {
        "id": rng.randrange(AUCTIONS),
        "item_name": rng.choice(("lamp", "chair", "vase")),
        "description": "an item",
        "initial_bid": rng.randrange(1, 1000),
        "reserve": rng.randrange(1000, 100000),
        "date_time": opened,
        "expires": opened + timedelta(seconds=rng.randrange(5, 60)),
        "seller": rng.randrange(PEOPLE),
        "category": rng.randrange(10, 13),
        "extra": rng.choice(_EXTRAS),
    }


def _bid(rng: Random) -> dict[str, Any]:
    directories = "/".join(rng.choice(("a", "bb", "c")) for _ in range(rng.randrange(1, 4)))
    channel_id = f"&channel_id={rng.randrange(100)}" if rng.random() < 0.5 else ""
    return {
        "auction": rng.randrange(AUCTIONS),
        "bidder": rng.randrange(PEOPLE),
        "price": round(10 ** rng.uniform(0, 8)),
        "channel": rng.choice(_CHANNELS),
        "url": f"https://www.example.com/{directories}/item.htm?query=1{channel_id}",
        "date_time": _moment(rng),
        "extra": rng.choice(_EXTRAS),
    }


def _side_input(rng: Random) -> dict[str, Any]:
    return {"key": rng.randrange(10), "value": rng.choice(("red", "blue", None))}


ROW_MAKERS: Mapping[str, RowMaker] = {
    "person": _person,
    "auction": _auction,
    "bid": _bid,
    "side_input": _side_input,
}
