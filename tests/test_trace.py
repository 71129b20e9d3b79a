"""The trace against a dictionary: whatever is added, merged and looked up, weights add up."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.trace import batch as batch_module
from penstock.trace import weights
from penstock.trace.batch import Batch, lookup, scan, write_batch
from penstock.trace.merge import FAN_IN, choose, choose_smallest, level, merge
from penstock.trace.rows import Layout, Rows, concat, find, order_by

LAYOUT = Layout((pa.string(),))
KEYS = st.integers(-3, 3).map(lambda k: k * (2**61))
CHANGES = st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(-2, 2)), max_size=30)


def _rows(changes: list[tuple[int, int, int]]) -> Rows:
    k, r, w = ([change[i] for change in changes] for i in range(3))
    names = pa.array([f"{a}/{b}" for a, b in zip(k, r, strict=True)], pa.string())
    return Rows(LAYOUT, np.array(k, np.int64), np.array(r, np.int64), (names,), (np.array(w, np.int64),))


def _content(rows: Rows) -> dict[tuple[int, int], int]:
    found = {(int(k), int(r)): int(w) for k, r, w in zip(rows.k, rows.r, rows.w, strict=True)}
    assert len(found) == len(rows)
    names = rows.columns[0].to_pylist()
    assert names == [f"{k}/{r}" for k, r in found]
    return found


def _total(*many: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    total: Counter[tuple[int, int]] = Counter()
    for changes in many:
        for k, r, w in changes:
            total[k, r] += w
    return {key: w for key, w in sorted(total.items()) if w}


@given(CHANGES)
def test_consolidation_adds_weights_and_sorts(changes: list[tuple[int, int, int]]) -> None:
    assert list(_content(_rows(changes).consolidated()).items()) == list(_total(changes).items())


@given(st.lists(CHANGES, max_size=5), st.sets(KEYS))
def test_lookup_scan_and_merge_agree(
    tmp_path_factory: pytest.TempPathFactory, many: list[list[tuple[int, int, int]]], keys: set[int]
) -> None:
    directory = tmp_path_factory.mktemp("trace")
    paths = []
    for number, changes in enumerate(many):
        rows = _rows(changes).consolidated()
        if len(rows):
            paths.append(directory / f"{number}.arrow")
            write_batch(paths[-1], LAYOUT, [rows])
    batches = [Batch(str(path), LAYOUT) for path in paths]
    expected = _total(*many)

    wanted = np.array(sorted(keys), np.int64)
    found = _content(lookup(LAYOUT, batches, wanted))
    assert found == {key: w for key, w in expected.items() if key[0] in keys}
    assert _content(concat(LAYOUT, list(scan(LAYOUT, batches)))) == expected
    if paths:
        target = directory / "merged.arrow"
        rows, size, _ = merge(LAYOUT, [Batch(str(path), LAYOUT) for path in paths], target)
        assert (rows, size) == (len(expected), target.stat().st_size)
        assert _content(concat(LAYOUT, Batch(str(target), LAYOUT).segments)) == expected


def test_many_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "SEGMENT_ROWS", 10)
    rng = np.random.default_rng(7)
    changes = [(int(k), int(k) % 3, 1) for k in rng.integers(-(2**62), 2**62, 137)]
    write_batch(tmp_path / "a.arrow", LAYOUT, [_rows(changes).consolidated()])
    opened = Batch(str(tmp_path / "a.arrow"), LAYOUT)
    assert len(opened.segments) == 14
    assert _content(concat(LAYOUT, list(scan(LAYOUT, [opened])))) == _total(changes)
    some = np.array(sorted(k for k, _, _ in changes[::5]), np.int64)
    assert set(lookup(LAYOUT, [opened], some).k) == set(some)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)), max_size=60))
def test_order_by_two_keys(pairs: list[tuple[int, int]]) -> None:
    k = np.array([a for a, _ in pairs], np.int64)
    r = np.array([b for _, b in pairs], np.int64)
    order = order_by(k, r) if pairs else np.array([], np.intp)
    assert [(int(a), int(b)) for a, b in zip(k[order], r[order], strict=True)] == sorted(pairs)


@given(CHANGES, st.lists(st.tuples(KEYS, st.integers(0, 4))))
def test_find(changes: list[tuple[int, int, int]], wanted: list[tuple[int, int]]) -> None:
    rows = _rows(changes).consolidated()
    k = np.array([a for a, _ in wanted], np.int64)
    r = np.array([b for _, b in wanted], np.int64)
    places = {key: i for i, key in enumerate(_content(rows))}
    assert find(rows, k, r).tolist() == [places.get(key, -1) for key in wanted]


@given(st.lists(st.decimals(-(10**30), 10**30, places=2), min_size=1, max_size=20))
def test_decimal_weights_are_exact(values: list[Decimal]) -> None:
    type_ = pa.decimal128(38, 2)
    column = weights.decode(pa.array(values, type_))
    total = weights.encode(weights.total(column, np.array([0])), type_)
    doubled = weights.encode(weights.add(column, column), type_)
    with localcontext(prec=60):
        assert total.to_pylist() == [sum(values)]
        assert doubled.to_pylist() == [2 * value for value in values]
    assert weights.nonzero(column).tolist() == [value != 0 for value in values]


def test_batches_stay_logarithmic() -> None:
    sizes: dict[str, int] = {}
    for number in range(5000):
        sizes[str(number)] = 1000
        for pick in (choose_smallest, choose):
            while chosen := pick(sizes):
                sizes[f"m{number}-{pick.__name__}"] = sum(sizes.pop(name) for name in chosen)
        assert len(sizes) <= FAN_IN * (level(sum(sizes.values())) + 1)


def test_damaged_batch_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_batch(path, LAYOUT, [_rows([(1, 1, 1)])])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"a\.arrow cannot be read"):
        Batch(str(path), LAYOUT)


def test_batch_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    schema = LAYOUT.schema.with_metadata({b"penstock.format": b"99"})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema):
        pass
    with pytest.raises(StorageError, match="format version 99"):
        Batch(str(path), LAYOUT)
