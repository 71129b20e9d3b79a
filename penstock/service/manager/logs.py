"""The log of a pipeline: what each of its runners wrote, one after the other, with numbered lines."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from penstock.service.manager.runners import Runner

_KEPT_FILES = 10
_KEPT_BYTES = 64 << 20
_LARGEST_BYTES = 16 << 20
_CHUNK_BYTES = 256 * 1024
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Position:
    """Where a stream of lines begins: after line `seq`; `gap` lines that were asked for are gone."""

    epoch: str
    seq: int
    gap: int

    def headers(self) -> dict[str, str]:
        return {
            "feldera-logs-epoch": self.epoch,
            "feldera-logs-seq": str(self.seq),
            "feldera-logs-gap": str(self.gap),
        }


class Logs:
    """A runner's log file gets a second name here, so it stays when the runner's directory goes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, pipeline_id: str, runner: Runner) -> None:
        """From now on the lines of this runner are those of the pipeline."""
        self.prepare(pipeline_id)
        files = self._files(pipeline_id)
        if files and files[-1].exists() and runner.log.exists() and files[-1].samefile(runner.log):
            return
        number = int(files[-1].stem) + 1 if files else 1
        runner.log.touch(mode=0o600)
        name = self._directory(pipeline_id) / f"{number:06}.log"
        try:
            os.link(runner.log, name)
        except OSError:  # another file system; the log goes with the runner then
            os.symlink(runner.log, name)
        self._forget_old(pipeline_id)

    def rotate(self, pipeline_id: str, limit: int = _LARGEST_BYTES) -> None:
        """Begin another file if the one that is written to is large. The runner goes on writing to the file
        it has, which appends: what it holds is copied to one with an earlier name, and it is emptied."""
        files = self._files(pipeline_id)
        if not files or files[-1].stat().st_size < limit:
            return
        written = files[-1]
        copy = written.with_suffix(".copy")
        begun = written.with_name(f"{int(written.stem) + 1:06}.log")
        with written.open("rb") as source, copy.open("wb") as sink:
            shutil.copyfileobj(source, sink)
            os.link(written, begun)
            os.replace(copy, written)
            shutil.copyfileobj(source, sink)  # what came meanwhile
            sink.flush()
            os.truncate(begun, 0)
        self._forget_old(pipeline_id)

    def prepare(self, pipeline_id: str) -> None:
        """Someone wants to read what is not written yet."""
        self._directory(pipeline_id).mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self, pipeline_id: str) -> None:
        shutil.rmtree(self._root / pipeline_id, ignore_errors=True)

    def position(self, pipeline_id: str, cursor: str | None) -> Position:
        """Where to begin for a cursor that an earlier stream gave."""
        dropped = self._dropped(pipeline_id)
        epoch, _, number = (cursor or "").rpartition(":")
        if not cursor:
            return Position(pipeline_id, dropped, 0)
        if epoch != pipeline_id or not number.isdecimal():
            return Position(pipeline_id, dropped, dropped)
        wanted = min(int(number), self._line_count(pipeline_id))
        return Position(pipeline_id, max(wanted, dropped), max(0, dropped - wanted))

    async def lines(self, pipeline_id: str, position: Position, *, follow: bool) -> AsyncIterator[bytes]:
        """Whole lines after a position, and those to come if it is to follow."""
        reader = _Reader(self._files(pipeline_id), position.seq - self._dropped(pipeline_id))
        while True:
            chunk = await run_in_threadpool(reader.read)
            if chunk:
                yield chunk
                continue
            newer = [path for path in self._files(pipeline_id) if path.name > reader.name]
            if newer:
                # The runner of this file has ended: nothing will be added to it.
                reader.go_on(newer)
            elif not follow or not self._directory(pipeline_id).exists():
                return
            else:
                await asyncio.sleep(_POLL_SECONDS)

    def tail(self, pipeline_id: str, size: int) -> bytes:
        """The last bytes of the log."""
        left = size
        parts: list[bytes] = []
        for path in reversed(self._files(pipeline_id)):
            content = path.read_bytes()[-left:] if left else b""
            parts.append(content)
            left -= len(content)
        return b"".join(reversed(parts))

    def _directory(self, pipeline_id: str) -> Path:
        return self._root / pipeline_id / "logs"

    def _files(self, pipeline_id: str) -> list[Path]:
        return sorted(self._directory(pipeline_id).glob("*.log"))

    def _dropped(self, pipeline_id: str) -> int:
        try:
            return int((self._directory(pipeline_id) / "dropped").read_text("ascii"))
        except FileNotFoundError:
            return 0

    def _line_count(self, pipeline_id: str) -> int:
        return self._dropped(pipeline_id) + sum(_count_lines(path) for path in self._files(pipeline_id))

    def _forget_old(self, pipeline_id: str) -> None:
        files = self._files(pipeline_id)
        while len(files) > 1 and (
            len(files) > _KEPT_FILES or sum(path.stat().st_size for path in files) > _KEPT_BYTES
        ):
            oldest = files.pop(0)
            dropped = self._dropped(pipeline_id) + _count_lines(oldest)
            # Counted first: lines that are counted twice are a gap, lines not counted would be repeated.
            (self._directory(pipeline_id) / "dropped").write_text(str(dropped), "ascii")
            oldest.unlink()


class _Reader:
    """Reads files one after the other, whole lines at a time."""

    def __init__(self, files: list[Path], skip: int) -> None:
        self._waiting: Iterator[Path] = iter(files)
        self._skip = skip
        self._path: Path | None = None
        self._offset = 0
        self._next()

    @property
    def name(self) -> str:
        return "" if self._path is None else self._path.name

    def go_on(self, files: list[Path]) -> None:
        self._waiting = iter(files)
        self._next()

    def read(self) -> bytes:
        """More whole lines; none if there are none yet."""
        while self._path is not None:
            try:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    chunk = file.read(_CHUNK_BYTES)
            except FileNotFoundError:
                chunk = b""
            end = chunk.rfind(b"\n") + 1
            whole = chunk[: end or len(chunk)] if len(chunk) == _CHUNK_BYTES else chunk[:end]
            self._offset += len(whole)
            if whole:
                if kept := self._after_skipped(whole):
                    return kept
                continue
            if not self._next():
                return b""
        return b""

    def _after_skipped(self, chunk: bytes) -> bytes:
        while self._skip and chunk:
            _, newline, chunk = chunk.partition(b"\n")
            self._skip -= len(newline)
        return chunk

    def _next(self) -> bool:
        path = next(self._waiting, None)
        if path is None:
            return False
        self._path, self._offset = path, 0
        return True


def _count_lines(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            count += chunk.count(b"\n")
    return count
