"""What may follow on the generation that runs: as much of it as others rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.replica.computed import Computed


def computed(relations: Mapping[str, str], *tables: str, **more: Any) -> Computed:
    return Computed("mark", relations, tables=tables, **more)


def test_a_table_with_other_columns_is_refused_by_name() -> None:
    before = computed({"orders": "a", "v": "x"}, "Orders")
    computed({"orders": "a", "v": "y"}, "orders").refuse_after(before, frozenset())
    with pytest.raises(StateError, match=r"the table Orders has other columns or another key.* another name"):
        computed({"orders": "b", "v": "x"}, "Orders").refuse_after(before, frozenset())


def test_tables_come_and_go() -> None:
    before = computed({"orders": "a"}, "orders")
    computed({"orders2": "b"}, "orders2").refuse_after(before, frozenset())
    computed({"orders": "now a view"}).refuse_after(before, frozenset())


def test_what_an_earlier_version_wrote_is_understood() -> None:
    assert Computed.of('{"mark": "m", "relations": {"t": "a"}}').tables == ()
    found = computed({"t": "a"}, "t", inputs={"c": "t"})
    assert Computed.of(found.text).text == found.text
