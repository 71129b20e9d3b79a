"""What each transaction took in, on disk before it is evaluated.

A transaction is one JSON file, `<number>.json`, that names its time and the splits of its input;
rows that came through the API lie beside it as Arrow. Splits can be read again with the same
result, so running the recorded transactions again from an earlier state gives the same state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from penstock.connectors import Split, arrow_splits
from penstock.errors import StorageError
from penstock.storage.files import sync_directory, write_file

_VERSION = 1


@dataclass(frozen=True)
class Recorded:
    """One transaction's input."""

    transaction: int
    now: datetime
    inputs: Mapping[str, Sequence[Split]]


class Journal:
    """The records since the last saved state; `durable` ones survive a power cut."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self._directory = directory
        self._durable = durable
        self.staged_bytes = 0  # since the last trim
        directory.mkdir(exist_ok=True)

    def stage(self, transaction: int, name: str, rows: pa.Table) -> list[Split]:
        """Write rows where tasks can read them, now and again."""
        path = self._directory / f"{transaction:012d}-{name}.arrow"

        def fill(file: object) -> None:
            with pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows, max_chunksize=65536)

        self.staged_bytes += write_file(path, fill, durable=self._durable)
        return arrow_splits(str(path), rows.num_rows)

    def record(self, recorded: Recorded) -> None:
        """From here on the transaction will take effect, whatever happens, unless it is dropped."""
        content = {
            "version": _VERSION,
            "now": recorded.now.isoformat(),
            "inputs": {
                table: [asdict(self._relative(split)) for split in splits]
                for table, splits in recorded.inputs.items()
            },
        }
        text = json.dumps(content).encode()
        write_file(self._record(recorded.transaction), lambda file: file.write(text), durable=self._durable)

    def after(self, transaction: int) -> Iterator[Recorded]:
        """The transactions recorded after the given one, in order and without a gap."""
        while (path := self._record(transaction + 1)).exists():
            transaction += 1
            yield self._read(transaction, path)

    def drop(self, transaction: int) -> None:
        """Forget a transaction that could not be evaluated."""
        self._record(transaction).unlink(missing_ok=True)
        if self._durable:
            sync_directory(self._directory)
        for path in self._directory.glob(f"{transaction:012d}-*.arrow"):
            path.unlink(missing_ok=True)

    def trim(self, transaction: int) -> None:
        """Forget everything up to a transaction that is in the saved state."""
        self.staged_bytes = 0
        for path in self._directory.iterdir():
            number = path.name[:12]
            if number.isdigit() and int(number) <= transaction:
                path.unlink(missing_ok=True)

    def _record(self, transaction: int) -> Path:
        return self._directory / f"{transaction:012d}.json"

    def _read(self, transaction: int, path: Path) -> Recorded:
        try:
            content = json.loads(path.read_bytes())
            if content["version"] != _VERSION:
                raise StorageError(
                    f"{path} has format version {content['version']}; this Penstock reads version {_VERSION}."
                )
            inputs = {
                table: [self._absolute(Split(**split)) for split in splits]
                for table, splits in content["inputs"].items()
            }
            return Recorded(transaction, datetime.fromisoformat(content["now"]), inputs)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageError(
                f"the journal record {path} cannot be read: {error}. Restore it from a copy of the storage"
                " directory, or start with an empty one."
            ) from error

    def _relative(self, split: Split) -> Split:
        """Staged rows are named without the directory, which may be moved."""
        path = Path(split.payload.get("path", ""))
        if split.source == "arrow" and path.parent == self._directory:
            return Split(split.source, {**split.payload, "path": path.name}, split.rows)
        return split

    def _absolute(self, split: Split) -> Split:
        if split.source == "arrow":
            path = self._directory / split.payload["path"]
            return Split(split.source, {**split.payload, "path": str(path)}, split.rows)
        return split
