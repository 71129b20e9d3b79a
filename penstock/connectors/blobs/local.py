"""Files of the machine, or of a directory that all machines share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO, ClassVar

from penstock.connectors.blobs.interface import Blob


class LocalBlob(Blob):
    """A local file; it may grow, and its errors are `OSError`s."""

    source: ClassVar[str] = "file"

    def __init__(self, path: str) -> None:
        self.label = path

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"path": self.label}

    def size(self) -> int:
        return os.path.getsize(self.label)

    def open(self) -> BinaryIO:
        return open(self.label, "rb")
