"""A host beside the executors of a Spark cluster that is there already: it tells them in a file who it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.hosts.messages import Admission
from penstock.hosts.private import write_private
from penstock.hosts.worker import identity
from penstock.storage.files import explained


class Beside:
    """In the place of a Spark worker of its own. The file is there as long as the host belongs to a run."""

    pid = None

    def __init__(self, file: Path, directory: Path, index: int) -> None:
        self._file = file
        self._directory = directory
        self._index = index

    def begin(self) -> None:
        """What an earlier process wrote is true until this one joins: executors go on meanwhile."""

    def start(self, admission: Admission) -> None:
        with explained(f"{self._file} cannot be written", "Give --beside a file in a directory of yours."):
            write_private(self._file, identity(admission, self._index, self._directory))

    def look(self, say: Callable[[str], None]) -> None:
        pass

    def stop(self) -> None:
        self._file.unlink(missing_ok=True)
