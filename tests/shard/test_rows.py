"""Equal values have equal hashes, wherever they are in a row."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from penstock.shard.rows import changes_hash, row_hashes

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
DOUBLE, TEXT = pa.float64(), pa.string()


@pytest.mark.parametrize(
    ("type_", "one", "other"),
    [
        (DOUBLE, 0.0, -0.0),
        (DOUBLE, float("nan"), OTHER_NAN),
        (pa.list_(DOUBLE), [1.0, 0.0], [1.0, -0.0]),
        (pa.list_(pa.float32()), [0.0], [-0.0]),
        (pa.list_(DOUBLE), [float("nan")], [OTHER_NAN]),
        (pa.list_(pa.list_(DOUBLE)), [[0.0], None], [[-0.0], None]),
        (pa.struct({"x": DOUBLE}), {"x": 0.0}, {"x": -0.0}),
        (pa.list_(pa.struct({"x": DOUBLE})), [{"x": 0.0}], [{"x": -0.0}]),
        (pa.map_(TEXT, DOUBLE), [("a", 0.0), ("b", 1.0)], [("b", 1.0), ("a", -0.0)]),
        (pa.map_(pa.int64(), TEXT), [(2, "x"), (10, None)], [(10, None), (2, "x")]),
        (
            pa.list_(pa.map_(TEXT, pa.map_(TEXT, DOUBLE))),
            [[("a", [("x", 0.0), ("y", 1.0)]), ("b", None)]],
            [[("b", None), ("a", [("y", 1.0), ("x", -0.0)])]],
        ),
        (pa.struct({"m": pa.map_(TEXT, DOUBLE)}), {"m": [("a", 0.0)]}, {"m": [("a", -0.0)]}),
    ],
)
def test_equal_values(type_: pa.DataType, one: object, other: object) -> None:
    table = pa.table({"value": pa.array([one, other], type_)})
    for half in row_hashes(table):
        assert half[0] == half[1]
    hashes = {
        changes_hash(pa.table({"value": pa.array([value], type_), "_time": [0], "_weight": [1]}))
        for value in (one, other)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("type_", "one", "other"),
    [
        (pa.list_(DOUBLE), [0.0, 1.0], [1.0, 0.0]),
        (pa.list_(pa.struct({"x": pa.int64()})), [{"x": 1}, {"x": 2}], [{"x": 2}, {"x": 1}]),
        (pa.map_(TEXT, TEXT), [("a", "b")], [("b", "a")]),
        (pa.map_(TEXT, TEXT), [("a", None)], [("a", "None")]),
        (pa.list_(TEXT), [], None),
        (pa.list_(TEXT), ["a, b"], ["a", "b"]),
    ],
)
def test_different_values(type_: pa.DataType, one: object, other: object) -> None:
    table = pa.table({"value": pa.array([one, other], type_)})
    for half in row_hashes(table):
        assert half[0] != half[1]
