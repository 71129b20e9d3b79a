"""A small JSON file that knows its kind, its format version and its checksum.

    {"format": "penstock catalog", "version": 1, "checksum": "...", "content": {...}}

The bytes are those that writing the content again would give, so no bit of the file can change unnoticed. A
version that is not known is refused by name before anything else is believed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Generic, TypeVar

import xxhash
from pydantic import TypeAdapter, ValidationError

from penstock.errors import DamagedError, StorageError
from penstock.storage.files import Content, write_file

T = TypeVar("T")


class Document(Generic[T]):
    """How documents of one kind are written and read; `type_` is a dataclass, whose fields are validated.

    Without an `indent` they are all on one line, which is written many times as fast.
    """

    def __init__(self, kind: str, version: int, type_: type[T], indent: int | None = 1) -> None:
        self._indent = indent
        self._format = f"penstock {kind}"
        self._version = version
        self._adapter = TypeAdapter(type_)

    def write(self, path: Path, value: T) -> Content:
        """Write it durably; returns what the file contains."""
        data = self.encode(value)
        return write_file(path, lambda file: file.write(data), durable=True)

    def encode(self, value: T) -> bytes:
        """Its bytes."""
        return self._encode(self._adapter.dump_python(value, mode="json"))

    def read(self, path: Path) -> T:
        """Read it back; the error of anything that is wrong names the file and the field."""
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DamagedError(f"{path} is missing") from error
        except OSError as error:
            raise DamagedError(f"{path} cannot be read: {error.strerror}") from error
        return self.parse(data, path)

    def parse(self, data: bytes, path: Path | str) -> T:
        """The content of a document's bytes; `path` is where they came from."""
        try:
            found = json.loads(data)
            found_format, version, content = found["format"], found["version"], found["content"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DamagedError(f"{path} is damaged: it is no {self._format} ({_reason(error)})") from error
        if found_format != self._format:
            raise DamagedError(f"{path} is damaged: its field 'format' is not {self._format!r}")
        if version != self._version:
            raise StorageError(
                f"{path} has format version {version!r}; this Penstock reads version {self._version}. Use the"
                " version that wrote it."
            )
        if self._encode(content) != data:
            raise DamagedError(f"{path} is damaged: its field 'checksum' does not fit its content")
        try:
            return self._adapter.validate_python(content, strict=False)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise DamagedError(f"{path} is damaged: its field {field!r} is wrong: {first['msg']}") from error

    def _encode(self, content: Any) -> bytes:
        body = json.dumps(content, indent=self._indent)
        head = {
            "format": self._format,
            "version": self._version,
            "checksum": xxhash.xxh3_128_hexdigest(body.encode()),
            "content": content,
        }
        return json.dumps(head, indent=self._indent).encode() + b"\n"


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"its field {error.args[0]!r} is missing"
    return str(error)
