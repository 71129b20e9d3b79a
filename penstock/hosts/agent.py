"""The HTTP application of a host: it serves its batch files, and looks after them as it is told."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from penstock.failpoints import failpoint
from penstock.hosts.admission import Admitted, changing
from penstock.hosts.duty import Duty
from penstock.hosts.names import refuse_names
from penstock.hosts.refusals import RefusalError, install_handlers
from penstock.hosts.syncing import SYNC, add_routes
from penstock.storage.files import Content
from penstock.trace.files import Size

_log = logging.getLogger("penstock")

_CHUNK = 1 << 20
_RUN = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class Sync:
    """Body of `POST /batches/sync`."""

    batches: dict[str, dict[str, Content]]


@dataclass(frozen=True)
class Check:
    """Body of `POST /batches/check`."""

    batches: dict[str, dict[str, Content]]
    deep: bool


@dataclass(frozen=True)
class Remove:
    """Body of `POST /batches/remove`."""

    batches: list[tuple[str, str]]


@dataclass(frozen=True)
class Discard:
    """Body of `POST /batches/discard`."""

    transaction: int
    run: str


@dataclass(frozen=True)
class Sweep:
    """Body of `POST /batches/sweep`."""

    needed: dict[str, list[str]]


def create_app(duty: Duty) -> FastAPI:
    """The application of this host."""
    app = FastAPI(title="Penstock host", openapi_url=None, docs_url=None, redoc_url=None)
    install_handlers(app, f"the host at {duty.address}")
    app.add_middleware(Admitted, duty=duty, free=(SYNC,))
    files = duty.files

    @app.get("/batches/{trace}/{name}")
    def batch(trace: str, name: str) -> StreamingResponse:
        refuse_names([(trace, name)])
        path = files.path(trace, name)
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed behind the last byte)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RefusalError(
                404, "NoSuchBatch", f"{duty} has no batch {trace}/{name}: {path} is missing"
            ) from error
        size = os.fstat(file.fileno()).st_size
        return StreamingResponse(
            _bytes_of(file, path),
            media_type="application/octet-stream",
            headers={"Content-Length": str(size)},
        )

    @app.post("/batches/sync")
    def sync(request: Request, body: Sync) -> dict[str, Any]:
        with changing(duty, request):
            files.sync(_sizes(body.batches))
        failpoint("host.synced")
        return {}

    @app.post("/batches/check")
    def check(body: Check) -> dict[str, Any]:
        names = [(trace, name) for trace, contents in body.batches.items() for name in contents]
        faults = [fault for fault, _ in files.faults(_sizes(body.batches), deep=body.deep)]
        return {
            "faults": [f"{duty}: {fault}" for fault in faults if fault is not None],
            "batches": [batch for batch, fault in zip(names, faults, strict=True) if fault is not None],
        }

    @app.post("/batches/remove")
    def remove(request: Request, body: Remove) -> dict[str, Any]:
        refuse_names(body.batches)
        with changing(duty, request):
            files.remove(body.batches)
        return {}

    @app.post("/batches/discard")
    def discard(request: Request, body: Discard) -> dict[str, Any]:
        if body.transaction < 0 or not _RUN.fullmatch(body.run):
            raise RefusalError(
                400, "InvalidName", f"no batch is of transaction {body.transaction} of run {body.run!r}"
            )
        with changing(duty, request):
            files.discard(body.transaction, body.run)
        return {}

    @app.post("/batches/sweep")
    def sweep(request: Request, body: Sweep) -> dict[str, Any]:
        needed = {(trace, name) for trace, names in body.needed.items() for name in names}
        refuse_names(needed)
        with changing(duty, request):
            files.sweep(needed)
        failpoint("host.swept")
        return {}

    add_routes(app, duty)

    @app.get("/status")
    def status() -> dict[str, Any]:
        pid = duty.worker()
        member = duty.member
        return {
            "membership": None if member is None else asdict(member[0]),
            "address": duty.address,
            "batches_bytes": _bytes_below(files.directory),
            "worker_pid": pid,
            "worker_runs": pid is not None,
        }

    @app.post("/over")
    def over() -> dict[str, Any]:
        duty.over()
        return {}

    return app


def _sizes(batches: Mapping[str, Mapping[str, Content]]) -> dict[str, dict[str, Size]]:
    refuse_names((trace, name) for trace, contents in batches.items() for name in contents)
    return {
        trace: {name: Size(0, content.bytes, content.checksum) for name, content in contents.items()}
        for trace, contents in batches.items()
    }


def _bytes_of(file: BinaryIO | Any, path: Path) -> Iterator[bytes]:
    """Whoever reads sees by the length, and by the checksum, that not all came."""
    with file:
        try:
            while data := file.read(_CHUNK):
                yield data
        except OSError as error:
            _log.error("%s cannot be read: %s", path, error.strerror)
            raise


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.glob("*/*.arrow"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # it was deleted meanwhile
    return total
