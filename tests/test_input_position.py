"""An input goes on where another one with the same configuration was, and notices what is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Input, Split, create_input, read_split
from penstock.errors import ConnectorError
from penstock.sql import Connector, parse_program

TABLE = parse_program("CREATE TABLE t (id BIGINT NOT NULL, name STRING)").tables[0]
SCHEMA = to_arrow_schema(TABLE.schema, timezone="UTC")


def open_input(path: Path, config: dict[str, Any] | None = None, **transport: Any) -> Input:
    entry: dict[str, Any] = {
        "transport": {"name": "file_input", "config": {"path": str(path), **transport}},
        "format": {"name": path.suffix[1:] or "csv", "config": config or {}},
    }
    return create_input(Connector("in", entry), TABLE)


def continued(source: Input, path: Path, config: dict[str, Any] | None = None, **transport: Any) -> Input:
    """A fresh input at the position of `source`, which is written down in between."""
    position = json.loads(json.dumps(source.position))
    fresh = open_input(path, config, **transport)
    fresh.seek(position)
    assert fresh.position == position
    return fresh


def ids(splits: list[Split]) -> list[int]:
    return [row["id"] for split in splits for batch in read_split(split, SCHEMA) for row in batch.to_pylist()]


def written(path: Path, count: int) -> dict[str, Any]:
    """Fill the file; returns the configuration of its format."""
    rows = [{"name": f"n{i}", "id": i} for i in range(count)]
    if path.suffix == ".csv":
        path.write_text("name,id\n" + "".join(f"{row['name']},{row['id']}\n" for row in rows))
        return {"headers": True}
    if path.suffix == ".json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {}
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20)
    return {}


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_new_input_after_every_poll_reads_every_row_once(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        config = written(tmp_path / f"{name}.{suffix}", 200)
    path = tmp_path / f"*.{suffix}"
    source = open_input(path, config)
    found: list[int] = []
    polls = 0
    while not source.ended:
        found += ids(source.poll(30))
        source = continued(source, path, config)
        polls += 1
    assert found == [*range(200), *range(200)]
    assert polls > 8
    assert source.poll(30) == []


def test_a_followed_file_goes_on_with_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    config = written(path, 3)
    source = open_input(path, config, follow=True)
    assert ids(source.poll(100)) == [0, 1, 2]
    with path.open("a") as file:
        file.write("n,3\nx,bad\n")
    splits = continued(source, path, config, follow=True).poll(100)
    with pytest.raises(ConnectorError, match=r"a\.csv, line 6: column 'id': 'bad'"):
        ids(splits)


def test_files_that_came_later_belong_to_followed_inputs_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a\n")
    for follow in (False, True):
        source = open_input(tmp_path / "*.csv", follow=follow)
        assert ids(source.poll(100)) == [1]
        (tmp_path / "b.csv").write_text("2,b\n")
        again = continued(source, tmp_path / "*.csv", follow=follow)
        again._looked = None  # type: ignore[attr-defined]
        assert ids(again.poll(100)) == ([2] if follow else [])
        (tmp_path / "b.csv").unlink()


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_file_that_shrank_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    config = written(path, 100)
    source = open_input(path, config)
    source.poll(50)
    written(path, 1)
    with pytest.raises(ConnectorError, match=rf"connector in: .*a\.{suffix} shrank from \d+ to \d+ bytes"):
        continued(source, path, config)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / f"{name}.json", 100)
    source = open_input(tmp_path / "*.json")
    source.poll(1000)
    (tmp_path / "a.json").unlink()
    with pytest.raises(ConnectorError, match=r"connector in: .*a\.json is gone, and \d+ bytes"):
        continued(source, tmp_path / "*.json")


def test_a_followed_file_that_is_gone_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        written(tmp_path / f"{name}.json", 3)
    source = open_input(tmp_path / "*.json", follow=True)
    assert len(ids(source.poll(1000))) == 6
    (tmp_path / "a.json").unlink()
    again = open_input(tmp_path / "*.json", follow=True)
    again.seek(source.position)
    assert "a.json is gone" in caplog.text
    for followed in (source, again):
        assert followed.poll(1000) == []
        assert [entry["blob"]["path"] for entry in followed.position["blobs"]] == [str(tmp_path / "b.json")]


def test_a_file_that_was_not_read_yet_may_change(tmp_path: Path) -> None:
    written(tmp_path / "a.json", 100)
    source = open_input(tmp_path / "a.json")
    written(tmp_path / "a.json", 1)
    assert ids(continued(source, tmp_path / "a.json").poll(10)) == [0]


def test_values_over_several_lines_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"id":\n1}')
    source = open_input(path, {"lines": "multiple"})
    assert ids(source.poll(10)) == [1]
    assert continued(source, path, {"lines": "multiple"}).ended


def test_before_the_first_poll_is_a_position_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    table = parse_program("CREATE TABLE t (id INT)").tables[0]
    config = {"transport": {"name": "url_input", "config": {"path": f"file://{tmp_path}/a.csv"}}}
    source = create_input(Connector("c", config), table)
    beginning = source.position
    first = source.poll(100)
    assert first
    source.seek(beginning)
    assert source.poll(100) == first
