"""The storage directory of a host: who holds it, and whose it is."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import HostError
from penstock.storage.document import Document
from penstock.storage.files import explained, make_directory
from penstock.storage.lock import locked

HOST_FILE = "host.json"
_CATALOG_FILE = "catalog.json"


@dataclass(frozen=True)
class Owned:
    """What a host's storage directory is."""

    storage: str
    """A random id."""
    index: int
    """Of the host that it is for."""
    pipeline: str | None = None
    """To which it belongs; None as long as the host was not let in."""


HOST: Document[Owned] = Document("host", 1, Owned)


class HostStorage:
    """The directory, locked for this process while it is open."""

    def __init__(self, directory: Path, index: int) -> None:
        self.directory = directory.absolute()
        with explained(
            f"the storage {self.directory} of host {index} cannot be used",
            "Check the disk and its rights, or give another directory.",
        ):
            make_directory(self.directory)
            self._refuse_coordinators(index)
            self._lock = locked(self.directory, "host")
            try:
                make_directory(self.directory / "batches")
                self.owned = self._read(index)
            except BaseException:
                self._lock.close()
                raise

    def _refuse_coordinators(self, index: int) -> None:
        if (self.directory / _CATALOG_FILE).exists():
            raise HostError(
                f"{self.directory} is the storage of a pipeline. Give host {index} a directory of its own.",
                host=index,
            )

    def _read(self, index: int) -> Owned:
        path = self.directory / HOST_FILE
        if not path.exists():
            owned = Owned(secrets.token_hex(8), index)
            HOST.write(path, owned)
            return owned
        owned = HOST.read(path)
        if owned.index != index:
            raise HostError(
                f"the storage {self.directory} is that of host {owned.index}; this is started as host"
                f" {index}. Give each host its own directory.",
                host=index,
            )
        return owned

    def belongs_to(self, pipeline: str) -> None:
        """It is this pipeline's from now on."""
        if self.owned.pipeline == pipeline:
            return
        with explained(f"the storage {self.directory} cannot be written", "Check the disk and its rights."):
            self.owned = replace(self.owned, pipeline=pipeline)
            HOST.write(self.directory / HOST_FILE, self.owned)

    def close(self) -> None:
        self._lock.close()
