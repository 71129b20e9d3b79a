"""The tables of a new generation must be those of the one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.replica.config import GroupConfig
from penstock.replica.promotion import promote
from tests.replica.test_replicas import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def test_a_table_with_other_columns_or_another_key_is_refused(site: Site) -> None:
    one = "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT); CREATE MATERIALIZED VIEW v AS SELECT id FROM t;"
    old = site.replica("old", program=one)
    old.start()
    wanted = r"the table t has other columns or another key"
    other = [one.replace("n INT", "n BIGINT"), one.replace(" PRIMARY KEY", "").replace("id B", "id  B")]
    for number, program in enumerate(other):
        with pytest.raises(StateError, match=wanted):
            site.replica(f"new {number}", program=program, generation=1).start()
    promote(GroupConfig.of({"uri": site.uri}, "shop"), 1, force=True)
    for number, program in enumerate(other):  # nobody of that generation has said yet what it computes
        with pytest.raises(StateError, match=wanted):
            site.replica(f"newer {number}", program=program, generation=1).start()
    site.replica("newest", program=one, generation=1).start()
