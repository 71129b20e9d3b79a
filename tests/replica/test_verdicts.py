"""Whoever says first whether a transaction is run or skipped has said it for all: no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import DivergedError, ShardError
from penstock.replica.verdicts import Verdict, Verdicts
from penstock.shard.stores.place import Place, PlaceConfig


@pytest.fixture(params=["directory", "sqlite"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    log = None if request.param == "directory" else f"sqlite:///{tmp_path / 'log.db'}"
    found = PlaceConfig(str(tmp_path / "shared"), log_uri=log).opened()
    yield found
    found.close()


def test_the_first_one_counts(place: Place) -> None:
    a, b = Verdicts(place.log, "v"), Verdicts(place.log, "v")
    assert a.of(0) is None
    assert a.say(0, Verdict.RUN) is b.say(0, Verdict.SKIPPED) is Verdict.RUN
    assert b.say(1, Verdict.SKIPPED) is a.say(1, Verdict.RUN) is Verdict.SKIPPED
    assert a.say(1, Verdict.SKIPPED) is Verdict.SKIPPED, "again"
    assert [b.of(0), b.of(1), b.of(2)] == [Verdict.RUN, Verdict.SKIPPED, None]


def test_one_that_has_no_say_compares(place: Place) -> None:
    old, new = Verdicts(place.log, "v"), Verdicts(place.log, "v")
    old.say(0, Verdict.RUN)
    old.say(1, Verdict.SKIPPED)
    new.confirm(4, {1})
    assert new.confirmed == 1, "nothing is known of what comes after it"
    old.say(2, Verdict.RUN)
    old.say(3, Verdict.SKIPPED)
    with pytest.raises(DivergedError, match="transaction 3 was skipped by the generation that runs"):
        new.confirm(4, {1})
    assert new.confirmed == 2


def test_one_that_takes_over_says_it_of_all_that_it_ran(place: Place) -> None:
    old, new = Verdicts(place.log, "v"), Verdicts(place.log, "v")
    old.say(0, Verdict.RUN)
    new.insist(2, ())
    assert (new.confirmed, old.say(2, Verdict.SKIPPED)) == (2, Verdict.RUN)
    assert old.say(3, Verdict.SKIPPED) is Verdict.SKIPPED
    with pytest.raises(DivergedError):
        new.insist(3, ())


def test_one_that_comes_when_nobody_knows_any_more(place: Place) -> None:
    all_ = Verdicts(place.log, "v")
    for number in range(5):
        all_.say(number, Verdict.RUN)
    all_.trim(4)
    with pytest.raises(ShardError, match="was away for too long"):
        all_.say(1, Verdict.SKIPPED)
