"""The settings of `storage.backend.config.sync`, with the names and defaults of the reference."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from penstock.errors import SyncError

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}(/[^/]+)*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)")
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

Number = Annotated[int, Field(ge=1, le=1_000)]


class SyncConfig(BaseModel):
    """Where checkpoints are kept beside the storage directory, and how they get there."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bucket: str
    read_bucket: str | None = None
    endpoint: str | None = None
    region: str | None = None
    provider: str | None = None
    access_key: str | None = Field(default=None, repr=False)
    secret_key: str | None = Field(default=None, repr=False)
    start_from_checkpoint: Literal["latest"] | UUID | None = None
    fail_if_no_checkpoint: bool = False
    standby: bool = False
    pull_interval: Annotated[int, Field(ge=1)] = 10
    push_interval: Annotated[int, Field(ge=1)] | None = None
    retention_min_count: Annotated[int, Field(ge=0)] = 10
    retention_min_age: Annotated[int, Field(ge=0)] = 30
    hold_outputs: bool | None = None
    """Whether outputs get a transaction only when a pushed checkpoint has it. Not of the reference."""
    transfers: Number | None = None
    checkers: Number | None = None
    upload_concurrency: Number | None = None
    multi_thread_cutoff: str | None = None
    multi_thread_streams: Number | None = None
    optimize_download_resources: bool = True
    ignore_checksum: bool | None = None
    flags: list[str] | None = None

    @classmethod
    def of(cls, given: Any) -> SyncConfig:
        """The settings, or a `SyncError` that names the first field that is wrong."""
        if not isinstance(given, Mapping):
            raise SyncError("storage.backend.config.sync: expected an object, such as {'bucket': 'name'}")
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"] if part not in ("constrained-int", "uuid"))
            reason = first["msg"].removeprefix("Value error, ")
            raise SyncError(f"storage.backend.config.sync{'.' if field else ''}{field}: {reason}") from error

    @field_validator("bucket", "read_bucket")
    @classmethod
    def _a_bucket(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if "://" in value:
            raise ValueError("give the bucket by its name alone, without a scheme: 'my-bucket/folder'")
        plain = value.strip("/")
        if not _BUCKET.fullmatch(plain) or any(part in (".", "..") for part in plain.split("/")):
            raise ValueError(
                f"{value!r} is no bucket: expected a name, and perhaps a folder: 'my-bucket/folder'"
            )
        return plain

    @field_validator("endpoint")
    @classmethod
    def _an_endpoint(cls, value: str | None) -> str | None:
        if value is not None and "@" in urlsplit(value).netloc:
            raise ValueError("give the keys as access_key and secret_key, not in the URL")
        if value is not None and (
            urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname
        ):
            raise ValueError("expected a URL, such as 'http://localhost:9000'")
        return value

    @field_validator("start_from_checkpoint", mode="before")
    @classmethod
    def _a_start(cls, value: Any) -> Any:
        try:
            return value if value in ("latest", None) else UUID(str(value))
        except ValueError:
            raise ValueError(f"expected 'latest' or the UUID of a checkpoint, found {value!r}") from None

    @field_validator("multi_thread_cutoff")
    @classmethod
    def _a_size(cls, value: str | None) -> str | None:
        if value is not None and not _SIZE.fullmatch(value):
            raise ValueError(f"expected a size such as '100M', with a suffix k, M, G or T, found {value!r}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> SyncConfig:
        if self.standby:
            raise ValueError(
                "'standby' is not a setting any more: start the pipeline with initial=standby instead"
            )
        if (self.access_key is None) != (self.secret_key is None):
            lacks = "secret_key" if self.secret_key is None else "access_key"
            raise ValueError(f"access_key and secret_key go together, and {lacks} is missing")
        if self.read_bucket == self.bucket:
            raise ValueError(
                "read_bucket must be another place than bucket, which is looked into first anyway"
            )
        for field in ("fail_if_no_checkpoint", "read_bucket"):
            if getattr(self, field) and self.start_from_checkpoint is None:
                raise ValueError(
                    f"{field} has no effect without start_from_checkpoint; set that to 'latest', or leave"
                    f" {field} out"
                )
        if self.retention_min_count == 0 and self.retention_min_age == 0:
            raise ValueError(
                "retention_min_count and retention_min_age cannot both be 0: no checkpoint would stay"
            )
        if self.ignore_checksum:
            raise ValueError("ignore_checksum is not possible: whatever is copied is checked; leave it out")
        if self.flags:
            raise ValueError("flags are for rclone, which is not used here; leave them out")
        return self

    @property
    def holds_outputs(self) -> bool:
        """By default if checkpoints are pushed by the clock: no output has what a failover would lose."""
        return self.push_interval is not None if self.hold_outputs is None else self.hold_outputs

    @property
    def wanted(self) -> str | None:
        """The checkpoint to start from: `latest`, an id, or none."""
        return None if self.start_from_checkpoint is None else str(self.start_from_checkpoint)

    @property
    def uploads(self) -> int:
        """How many files are sent at once."""
        return self.transfers or 20

    @property
    def downloads(self) -> int:
        """How many files are fetched at once."""
        most = 4 * (os.cpu_count() or 1) if self.optimize_download_resources else 0
        return max(self.uploads, most)

    @property
    def lookups(self) -> int:
        """How many objects are looked for at once."""
        return self.checkers or 20

    @property
    def upload_parts(self) -> int:
        """How many parts of a large file are sent at once."""
        return self.upload_concurrency or 10

    @property
    def streams(self) -> int:
        """How many parts of a large file are fetched at once."""
        return self.multi_thread_streams or 10

    @property
    def large(self) -> int:
        """From how many bytes on a file is fetched in parts."""
        found = _SIZE.fullmatch(self.multi_thread_cutoff or "100M")
        assert found is not None, "it was validated"
        return int(float(found[1]) * _UNITS[found[2]])
