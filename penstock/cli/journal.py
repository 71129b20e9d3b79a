"""`penstock journal show`: what the journal says, for a person or for a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.checkpoint.store import CheckpointStore
from penstock.errors import StorageError
from penstock.journal.journal import Entry, read_entries
from penstock.journal.record import Kind, Portion


def journal_entries(storage: Path) -> list[Entry]:
    """All records that are in a storage directory."""
    catalog = CheckpointStore(storage).read()
    directory = storage / (catalog.journal if catalog is not None else "journal")
    if not directory.is_dir():
        raise StorageError(
            f"{storage} is no storage directory: it has no journal. Give the one of `penstock run`."
        )
    return read_entries(directory)


def as_json(entry: Entry) -> str:
    """A record in one line."""
    record = entry.record
    content: dict[str, Any] = {
        "record": entry.number,
        "kind": record.kind,
        "transaction": record.transaction,
        "at": record.at.isoformat(),
        "segment": entry.path.name,
    }
    if record.portions:
        content["portions"] = [
            {
                "connector": p.connector,
                "table": p.table,
                "rows": _rows(p),
                "splits": [{"source": s.source, "payload": s.payload} for s in p.splits],
                "file": p.rows.file if p.rows is not None else None,
                "position": p.position,
            }
            for p in record.portions
        ]
    if record.digests:
        content["digests"] = {
            n: {"rows": d.rows, "hash": f"{d.hash:016x}"} for n, d in record.digests.items()
        }
    if record.note:
        content["note"] = record.note
    return json.dumps(content)


def show(entries: list[Entry], console: Console) -> None:
    """The records as a table."""
    table = Table("record", "transaction", "what", "when", "content")
    for entry in entries:
        record = entry.record
        table.add_row(
            str(entry.number),
            "" if record.kind in (Kind.CONNECTOR, Kind.JOIN) else str(record.transaction),
            record.kind,
            record.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
            escape(_content(entry)),
        )
    console.print(table)


def _content(entry: Entry) -> str:
    record = entry.record
    parts = [
        f"{p.connector} -> {p.table}: {'not counted' if (rows := _rows(p)) is None else f'{rows} rows'}"
        for p in record.portions
    ]
    parts += [f"{name}: {digest}" for name, digest in record.digests.items()]
    parts += [f"{key}: {value}" for key, value in record.note.items()]
    return "\n".join(parts)


def _rows(portion: Portion) -> int | None:
    if portion.rows is not None:
        return portion.rows.count
    known = [split.rows for split in portion.splits]
    return None if None in known else sum(rows or 0 for rows in known)
