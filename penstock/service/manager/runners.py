"""Runner processes: a directory and a row in the database for each, so that the next manager finds them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import delete, insert, select, update

from penstock.references import SECRETS
from penstock.service.manager import processes
from penstock.service.manager.clock import now, seconds_since
from penstock.service.manager.database import Database
from penstock.service.manager.schema import runners
from penstock.service.manager.settings import Settings
from penstock.service.workers import effective_workers

_LOG_BYTES = 64 * 1024
_LOG_LINES = 20


@dataclass(frozen=True)
class Endpoint:
    """Where a runner listens, and what it wants to hear."""

    url: str
    token: str


@dataclass(frozen=True)
class Runner:
    """One runner process, with or without a pipeline."""

    id: str
    directory: Path
    pipeline_id: str | None
    pid: int
    started: float
    created_at: str
    settings: Mapping[str, Any]
    replica: int = 0
    """Which of the replicas of its pipeline it is, if there are several."""

    @property
    def is_alive(self) -> bool:
        return processes.is_alive(self.pid, self.started)

    @property
    def age_seconds(self) -> float:
        return seconds_since(self.created_at)

    @property
    def log(self) -> Path:
        return self.directory / "runner.log"

    @property
    def exit_code(self) -> int | None:
        return processes.exit_code(self.pid)

    def endpoint(self) -> Endpoint | None:
        """None as long as it has not said where it listens."""
        try:
            written = json.loads((self.directory / "runner.json").read_text("utf-8"))
            token = (self.directory / "token").read_text("utf-8").strip()
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return Endpoint(f"http://127.0.0.1:{int(written['port'])}", token)

    def failure(self) -> dict[str, Any] | None:
        """What the runner itself said about its end, if it did not end in order."""
        said = self._last_words()
        return said if said.get("message") else None

    @property
    def ended_in_order(self) -> bool:
        """Whether it ended because it was told to, whoever watched it."""
        return bool(self._last_words().get("stopped"))

    def _last_words(self) -> dict[str, Any]:
        try:
            said = json.loads((self.directory / "exit.json").read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return said if isinstance(said, dict) else {}

    def last_lines(self) -> list[str]:
        """The end of its log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
                return file.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
        except FileNotFoundError:
            return []

    def kill(self) -> None:
        processes.kill_group(self.pid, self.started)


class Runners:
    """All runners of this manager."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._common = {"allowed_paths": settings.allowed_paths, "log_format": settings.log_format}
        settings.runners.mkdir(mode=0o700, parents=True, exist_ok=True)

    def launch(self, settings: Mapping[str, Any], pipeline_id: str | None = None, replica: int = 0) -> Runner:
        """Start a process; it is not waited for."""
        id_ = str(uuid.uuid4())
        directory = self._settings.runners / id_
        directory.mkdir(mode=0o700)
        _write_private(directory / "token", secrets.token_urlsafe(32))
        _write_private(directory / "settings.json", json.dumps({**settings, **self._common}))
        row = {
            "id": id_,
            "pipeline_id": pipeline_id,
            "created_at": now(),
            "settings": dict(settings),
            "replica": replica,
        }
        with self._database.write() as connection:
            connection.execute(insert(runners).values(row))
        command = [*self._settings.runner_command, str(directory)]
        environment = {**settings.get("env", {}), SECRETS: str(self._settings.secrets_directory)}
        pid, started = processes.spawn(command, directory / "runner.log", environment)
        with self._database.write() as connection:
            connection.execute(update(runners).where(runners.c.id == id_).values(pid=pid, started=started))
        return self._runner({**row, "pid": pid, "started": started})

    def all(self) -> list[Runner]:
        with self._database.read() as connection:
            rows = connection.execute(select(runners).where(runners.c.pid.is_not(None)))
            return [self._runner(row._mapping) for row in rows]

    def get(self, id_: str | None) -> Runner | None:
        if id_ is None:
            return None
        with self._database.read() as connection:
            row = connection.execute(
                select(runners).where(runners.c.id == id_, runners.c.pid.is_not(None))
            ).first()
            return None if row is None else self._runner(row._mapping)

    def of(self, pipeline_id: str) -> list[Runner]:
        """Those of one pipeline: one, or its replicas."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(runners)
                .where(runners.c.pipeline_id == pipeline_id, runners.c.pid.is_not(None))
                .order_by(runners.c.replica, runners.c.created_at)
            )
            return [self._runner(row._mapping) for row in rows]

    def assign(self, runner: Runner, pipeline_id: str, replica: int = 0) -> Runner:
        """This runner is for that pipeline from now on."""
        with self._database.write() as connection:
            connection.execute(
                update(runners)
                .where(runners.c.id == runner.id)
                .values(pipeline_id=pipeline_id, replica=replica)
            )
        return replace(runner, pipeline_id=pipeline_id, replica=replica)

    def remove(self, runner: Runner) -> None:
        """End what is left of a runner, and forget it."""
        runner.kill()
        with self._database.write() as connection:
            connection.execute(delete(runners).where(runners.c.id == runner.id))
        processes.forget(runner.pid)
        shutil.rmtree(runner.directory, ignore_errors=True)

    def remove_strays(self, used: Iterable[str]) -> list[str]:
        """What a manager that was killed left behind: processes and directories that nothing knows of."""
        kept = set(used)
        root = str(self._settings.runners) + os.sep
        for process in processes.with_argument(root):
            try:
                name = next(
                    argument[len(root) :] for argument in process.cmdline() if argument.startswith(root)
                ).split(os.sep)[0]
                if name not in kept:
                    processes.kill_group(process.pid, processes.start_of(process.pid))
            except (psutil.Error, StopIteration):
                continue  # it ended meanwhile
        with self._database.write() as connection:
            connection.execute(delete(runners).where(runners.c.id.not_in(kept)))
        strays = [path for path in self._settings.runners.iterdir() if path.name not in kept]
        for path in strays:
            shutil.rmtree(path, ignore_errors=True)
        return [path.name for path in strays]

    def _runner(self, row: Mapping[Any, Any]) -> Runner:
        return Runner(
            id=row["id"],
            directory=self._settings.runners / row["id"],
            pipeline_id=row["pipeline_id"],
            pid=row["pid"],
            started=row["started"],
            created_at=row["created_at"],
            settings=row["settings"],
            replica=row["replica"] or 0,
        )


def runner_settings(runtime_config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a pipeline's configuration its process is started with."""
    hosts = runtime_config.get("hosts", 1)
    return {
        **({"hosts": hosts} if hosts > 1 else {}),
        "workers": effective_workers(runtime_config["workers"]),
        "spark": dict(runtime_config.get("spark", {})),
        "env": dict(runtime_config["env"]),
    }


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
