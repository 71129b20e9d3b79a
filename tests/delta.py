"""A second, small reader of Delta tables: it replays the JSON log and reads the Parquet files with pyarrow.

It shares no code with the `deltalake` package, so that a test does not ask the writer about itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq


def log(table: Path) -> list[list[dict[str, Any]]]:
    """The actions of each version."""
    files = sorted((table / "_delta_log").glob("*.json"))
    assert [int(file.stem) for file in files] == list(range(len(files)))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def read(table: Path) -> list[dict[str, Any]]:
    """The rows of the newest version."""
    live: dict[str, dict[str, Any]] = {}
    schema: dict[str, Any] = {}
    for actions in log(table):
        for action in actions:
            if "metaData" in action:
                schema = json.loads(action["metaData"]["schemaString"])
                assert action["metaData"]["partitionColumns"] == []
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    names = [field["name"] for field in schema["fields"]]
    rows: list[dict[str, Any]] = []
    for path, add in live.items():
        file: pa.Table = pq.ParquetFile(table / unquote(path)).read()
        assert add["size"] == (table / unquote(path)).stat().st_size
        assert json.loads(add["stats"])["numRecords"] == file.num_rows
        rows += [{name: row.get(name) for name in names} for row in file.to_pylist()]
    return rows


def transactions(table: Path) -> list[tuple[str, int]]:
    """The application transactions of the log, in its order."""
    return [
        (action["txn"]["appId"], action["txn"]["version"])
        for actions in log(table)
        for action in actions
        if "txn" in action
    ]
