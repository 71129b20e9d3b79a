"""Disks that record, fail, tear and forget, to be put in the place of the real one.

None of them really syncs: that is slow, and only a power cut could tell.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from penstock.storage.disk import Disk, use_disk


class Act(StrEnum):
    """What a disk is asked to do."""

    WRITE = "write"
    SYNC = "sync"
    RENAME = "rename"
    REMOVE = "remove"


EVERY = frozenset(Act)


class IdleDisk(Disk):
    """The real one, but for syncs, which do nothing."""

    def sync(self, descriptor: int) -> None:
        os.fstat(descriptor)

    def close(self) -> None:
        """Let go of whatever it holds."""


D = TypeVar("D", bound=IdleDisk)


@contextmanager
def using(disk: D) -> Iterator[D]:
    """Put a disk in place of the real one, and the real one back."""
    before = use_disk(disk)
    try:
        yield disk
    finally:
        use_disk(before)
        disk.close()


def path_of(descriptor: int) -> Path:
    """The name that an open file has now."""
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


@dataclass(frozen=True)
class Call:
    """One call of a disk. `path` is the name that the file had then; of a rename, the new one."""

    act: Act
    path: Path
    source: Path | None = None
    """Of a rename: the old name."""
    data: bytes = b""
    """Of a write: the bytes."""


class RecordingDisk(IdleDisk):
    """Remembers every call, in order."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        written = super().write(descriptor, data)
        self.calls.append(Call(Act.WRITE, path_of(descriptor), data=bytes(data)[:written]))
        return written

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self.calls.append(Call(Act.SYNC, path_of(descriptor)))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.calls.append(Call(Act.RENAME, Path(target), Path(source)))

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.calls.append(Call(Act.REMOVE, Path(path)))


class FailingDisk(IdleDisk):
    """The `nth` call (counted from 0) of those in `acts` fails, with `code`.

    `torn`: a write that fails has written half of its bytes. `lasting`: all calls after it fail too, until
    `heal` is called.
    """

    def __init__(
        self,
        nth: int = 0,
        acts: Collection[Act] = EVERY,
        *,
        code: int = errno.ENOSPC,
        torn: bool = False,
        lasting: bool = False,
    ) -> None:
        self.failed: list[Call] = []
        """The calls that failed."""
        self._left: int | None = nth
        self._acts = acts
        self._code = code
        self._torn = torn
        self._lasting = lasting
        self._lock = threading.Lock()

    def heal(self) -> None:
        """Fail no more."""
        self._left = None

    def _fails(self, call: Call) -> bool:
        with self._lock:
            if self._left is None or call.act not in self._acts:
                return False
            if self._left > 0:
                self._left -= 1
                return False
            if not self._lasting:
                self._left = None
            self.failed.append(call)
            return True

    def _error(self, path: Path) -> OSError:
        return OSError(self._code, os.strerror(self._code), str(path))

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        path = path_of(descriptor)
        if self._fails(Call(Act.WRITE, path)):
            if self._torn:
                super().write(descriptor, memoryview(data)[: len(data) // 2])
            raise OSError(self._code, os.strerror(self._code))  # as the system does: without a name
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        if self._fails(Call(Act.SYNC, path_of(descriptor))):
            raise OSError(self._code, os.strerror(self._code))
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        if self._fails(Call(Act.RENAME, Path(target), Path(source))):
            raise self._error(source)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        if self._fails(Call(Act.REMOVE, Path(path))):
            raise self._error(path)
        super().remove(path)


class ForgetfulDisk(IdleDisk):
    """Knows what a power cut leaves of a directory: bytes and names that were synced.

    What is there at first is durable. From then on the bytes of a file are durable as they were when it was
    last synced, by whatever name, and the names in a directory (made, changed or removed, by this disk or by
    anybody else) as they were when the directory was last synced.

    Without a `seed` all else is lost: names that were not synced vanish, those whose removal was not synced
    come back, and files that were not synced are empty. With a seed chance decides, as it does for real: any
    of those names may be there or not, and any of those files whole, empty, garbage, or cut short where it
    grew.

    `after`, if given, is called after each call.
    """

    def __init__(self, root: Path, *, after: Callable[[], None] | None = None) -> None:
        self.root = root
        self._after = after
        self._lock = threading.RLock()
        self._held: dict[int, int] = {}  # inode -> descriptor, so that no inode is ever used again
        self._bytes: dict[int, bytes] = {}  # inode of a file -> its bytes when it was synced
        self._names: dict[int, dict[str, int]] = {}  # inode of a directory -> its names when it was synced
        self._believe(root)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        written = super().write(descriptor, data)
        self._done()
        return written

    def sync(self, descriptor: int) -> None:
        with self._lock:
            self._remember(Path(f"/proc/self/fd/{descriptor}"))
        self._done()

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._done()

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._done()

    def close(self) -> None:
        with self._lock:
            for descriptor in self._held.values():
                os.close(descriptor)
            self._held.clear()
            self._bytes.clear()
            self._names.clear()

    def cut(self, into: Path | None = None, *, seed: int | None = None) -> None:
        """Cut the power: make the directory what is left of it, or write that `into` another, a new one."""
        with self._lock:
            left = self._surviving(self.root, None if seed is None else random.Random(seed))
            if into is not None:
                _write(into, left)
                return
            self.close()
            shutil.rmtree(self.root)
            _write(self.root, left)
            self._believe(self.root)

    def _done(self) -> None:
        if self._after is not None:
            with self._lock:
                self._after()

    # -- remembering ----------------------------------------------------------------------------

    def _believe(self, path: Path) -> None:
        """All below a directory is durable."""
        if path.is_dir():
            self._remember(path)
            for found in path.iterdir():
                self._believe(found)
        elif path.is_file():
            self._remember(path)

    def _remember(self, path: Path) -> None:
        inode = self._hold(path)
        if path.is_dir():
            self._names[inode] = self._names_in(path)
        else:
            self._bytes[inode] = path.read_bytes()

    def _names_in(self, directory: Path) -> dict[str, int]:
        names = {}
        with suppress(FileNotFoundError):  # it was removed
            for name in os.listdir(directory):
                with suppress(FileNotFoundError):  # it went away meanwhile
                    names[name] = self._hold(directory / name)
        return names

    def _hold(self, path: Path) -> int:
        descriptor = os.open(path, os.O_PATH)
        inode = os.fstat(descriptor).st_ino
        if inode in self._held:
            os.close(descriptor)
        else:
            self._held[inode] = descriptor
        return inode

    # -- the cut --------------------------------------------------------------------------------

    def _surviving(self, path: Path, chance: random.Random | None) -> Tree:
        return self._directory(self._hold(path), chance) if path.exists() else {}

    def _directory(self, inode: int, chance: random.Random | None) -> Tree:
        names = self._names.get(inode, {})
        if chance is not None:
            now = self._names_in(Path(f"/proc/self/fd/{self._held[inode]}"))
            mixed = {}
            for name in sorted({*names, *now}):
                found = chance.choice([names.get(name), now.get(name)])
                if found is not None:
                    mixed[name] = found
            names = mixed
        left: Tree = {}
        for name, child in names.items():
            is_directory = stat.S_ISDIR(os.fstat(self._held[child]).st_mode)
            left[name] = self._directory(child, chance) if is_directory else self._file(child, chance)
        return left

    def _file(self, inode: int, chance: random.Random | None) -> bytes:
        synced = self._bytes.get(inode)
        if chance is None:
            return synced or b""
        now = Path(f"/proc/self/fd/{self._held[inode]}").read_bytes()
        if synced is None:
            return chance.choice([now, b"", chance.randbytes(len(now))])
        if now.startswith(synced):
            return now[: chance.randint(len(synced), len(now))]
        return chance.choice([synced, now])


Tree = dict[str, "bytes | Tree"]


def _write(directory: Path, tree: Tree) -> None:
    directory.mkdir(parents=True)
    for name, content in tree.items():
        if isinstance(content, bytes):
            (directory / name).write_bytes(content)
        else:
            _write(directory / name, content)


def files_of(root: Path) -> dict[str, bytes]:
    """Every file below a directory, and its bytes."""
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
