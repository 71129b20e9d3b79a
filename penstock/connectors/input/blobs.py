"""What the inputs that read blobs have in common: `file_input`, `url_input` and `s3_input`.

Text is cut into byte ranges that end after a record, Parquet into row groups and Avro into ranges of blocks,
so that several tasks read one blob at once.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from penstock.connectors.blobs.interface import Blob
from penstock.connectors.formats import avro, csv, json, parquet
from penstock.connectors.formats.record import Rejections, Target
from penstock.connectors.input.progress import GoneError, Progress, progress_of
from penstock.connectors.interface import Input, Reject, Split
from penstock.errors import ConnectorError, UnreachableError

_log = logging.getLogger("penstock")


class BlobInput(Input):
    """Hands out ranges of blobs, one blob after the other."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], *, key: Sequence[str], follow: bool = False
    ) -> None:
        self.name = name
        self._settings = settings
        self._key = list(key)
        self._follow = follow
        self._progress: dict[str, Progress] | None = None

    @abstractmethod
    def _find(self) -> list[Blob]:
        """What there is now; called at the first poll, and with `follow` at every poll."""

    @abstractmethod
    def _again(self, identity: Mapping[str, Any]) -> Blob:
        """The blob of an identity."""

    def poll(self, max_rows: int) -> list[Split]:
        splits: list[Split] = []
        left = max_rows
        for progress in list(self._look().values()):
            while left > 0:
                try:
                    with self._named():
                        found = progress.next(left)
                except UnreachableError:
                    if splits:
                        return splits  # they are handed out; the next poll fails again, if it still does
                    raise
                except GoneError as error:
                    self._leave(progress, error)
                    break
                if found is None:
                    break
                payload, rows = found
                splits.append(
                    Split(progress.blob.source, {**payload, **progress.blob.identity, "key": self._key}, rows)
                )
                left -= rows
        return splits

    @property
    def ended(self) -> bool:
        if self._follow or self._progress is None:
            return False
        return all(progress.done for progress in self._progress.values())

    @property
    def position(self) -> Any:
        if self._progress is None:
            return {"blobs": None}
        return {"blobs": [{"blob": dict(p.blob.identity), "at": p.at} for p in self._progress.values()]}

    def has_reached(self, position: Any, earlier: Any) -> bool:
        now = [(entry["blob"], entry["at"]) for entry in position["blobs"] or []]
        return all(
            any(blob == entry["blob"] and _is_at(at, entry["at"]) for blob, at in now)
            for entry in earlier["blobs"] or []
        )

    def seek(self, position: Any) -> None:
        """Without `follow` the blobs are those of the position: what came later was not asked for."""
        self._forget()
        if position["blobs"] is None:
            return
        self._progress = {}
        for entry in position["blobs"]:
            progress = self._started(self._again(entry["blob"]))
            try:
                with self._named():
                    progress.go_to(entry["at"])
            except GoneError as error:
                self._leave(progress, error)

    def _leave(self, progress: Progress, error: GoneError) -> None:
        """Followed files come and go: one that is gone has given what it had. Any other is missed."""
        if not self._follow or self._progress is None:
            raise error
        _log.warning("%s; it is not followed any longer", error)
        del self._progress[progress.blob.label]

    def _forget(self) -> None:
        """Know of no blob, as before the first poll."""
        self._progress = None

    def _look(self) -> dict[str, Progress]:
        if self._progress is None or self._follow:
            with self._named():
                found = self._find()
            for blob in found:
                if self._progress is None or blob.label not in self._progress:
                    self._started(blob)
        self._progress = self._progress or {}
        return self._progress

    def _started(self, blob: Blob) -> Progress:
        if self._progress is None:
            self._progress = {}
        self._progress[blob.label] = progress_of(blob, self._settings, follow=self._follow)
        return self._progress[blob.label]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors name the connector."""
        try:
            yield
        except ConnectorError as error:
            raise type(error)(f"connector {self.name}: {error}") from error
        except FileNotFoundError as error:
            raise GoneError(
                f"connector {self.name}: cannot read {error.filename}: {error.strerror}"
            ) from error
        except OSError as error:
            raise ConnectorError(
                f"connector {self.name}: cannot read {error.filename}: {error.strerror}"
            ) from error


def read_blob(
    blob: Blob, payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any], reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of one range of one blob."""
    settings = payload["format"]
    target = Target(schema, payload["key"], defaults)
    try:
        with blob.open() as file:
            if settings["name"] == parquet.NAME:
                rejections = Rejections(blob.label, "row", payload["before"], reject)
                yield from parquet.read_parquet(file, payload["row_groups"], target, rejections)
                return
            header = file.read(payload.get("header", 0))
            start, end = payload["start"], payload["end"]
            file.seek(start)
            data = file.read(end - start)
    except (OSError, pa.ArrowException) as error:
        raise ConnectorError(f"cannot read {blob.label}: {error}") from error
    if len(data) != end - start:
        raise ConnectorError(
            f"{blob.label} ends at byte {start + len(data)}, and bytes {start} to {end} were expected"
        )
    if settings["name"] == avro.NAME:
        rejections = Rejections(blob.label, "record", payload["before"], reject)
        yield from avro.read_avro(header, data, settings, target, rejections)
        return
    parse = csv.parse_csv if settings["name"] == csv.NAME else json.parse_json
    yield from parse(data, settings, target, Rejections(blob.label, "line", payload["before"], reject))


def _is_at(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    """Whether as much of a blob was handed out at one moment as at another."""
    return all(now[name] >= then[name] for name in ("offset", "before", "done"))
