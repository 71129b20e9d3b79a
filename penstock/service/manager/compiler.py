"""Programs are compiled by blank runners, one after the other."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.service.errors import ApiError
from penstock.service.manager.pipelines import NO_PROGRAM_ERROR, Change, Pipelines, Row
from penstock.service.manager.runner_client import RunnerClient, RunnerRefusedError, RunnerUnreachableError
from penstock.service.manager.runners import Runner
from penstock.service.manager.spares import NoSpareError, Spares
from penstock.service.statuses import ProgramStatus, ResourcesStatus

_log = logging.getLogger("penstock.manager")

_WAIT_SECONDS = 120.0
_ATTEMPTS = 2
_MOST_ASKED = 8
"""So many requests wait for a blank runner; more would take the manager's threads from the others."""


class Compiler:
    """A thread that compiles what is pending; others may ask it to compile without a pipeline."""

    def __init__(self, pipelines: Pipelines, spares: Spares, client: RunnerClient) -> None:
        self._pipelines = pipelines
        self._spares = spares
        self._client = client
        self._asked = threading.BoundedSemaphore(_MOST_ASKED)
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock compiler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something to compile."""
        self._wake.set()

    def end(self) -> None:
        self._ending.set()
        self._wake.set()

    def compile(self, program: str) -> dict[str, Any]:
        """What a blank runner says about a program."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._spares.lent(_WAIT_SECONDS) as runner:
                    return self._client.compile(runner, program)
            except NoSpareError as error:
                return {"status": "SystemError", "error": str(error)}
            except RunnerUnreachableError as error:
                _log.warning("compiling failed (attempt %d): %s", attempt, error)
                failure = str(error)
        return {"status": "SystemError", "error": f"the process that compiles the program failed: {failure}"}

    def validate(self, program: str) -> dict[str, Any]:
        """The same for a request that only asks."""
        with self._admitted():
            return validation(self.compile(program))

    def diff(self, old: str, new: str) -> dict[str, Any]:
        """What a blank runner says about a change of a program."""
        return self._ask(lambda runner: self._client.diff(runner, old, new))

    def explain(self, program: str) -> dict[str, Any]:
        """How the views of a program are kept up to date."""
        return self._ask(lambda runner: self._client.explain(runner, program))

    def _ask(self, question: Callable[[Runner], dict[str, Any]]) -> dict[str, Any]:
        try:
            with self._admitted(), self._spares.lent(_WAIT_SECONDS) as runner:
                return question(runner)
        except RunnerRefusedError as error:
            raise ApiError(error.answer.status_code, *_refusal(error)) from error
        except (NoSpareError, RunnerUnreachableError) as error:
            raise ApiError(
                503, "CompilerUnavailable", f"The compiler does not answer: {error}", {"error": str(error)}
            ) from error

    @contextlib.contextmanager
    def _admitted(self) -> Iterator[None]:
        if not self._asked.acquire(blocking=False):
            raise ApiError(
                503, "CompilerBusy", f"{_MOST_ASKED} requests wait for the compiler already; try again later"
            )
        try:
            yield
        finally:
            self._asked.release()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.wait(5.0)
            self._wake.clear()
            try:
                for row in self._pipelines.uncompiled():
                    if self._ending.is_set():
                        return
                    self._compile_program_of(row)
            except Exception:
                # The database may be away for a moment; what is pending stays pending.
                _log.exception("programs could not be compiled")

    def _compile_program_of(self, row: Row) -> None:
        guard = row["program_version"]
        current = self._pipelines.change_by_id(
            row["id"], _if_still(guard, {"program_status": ProgramStatus.COMPILING_SQL.value})
        )
        if current is None or current["program_version"] != guard:
            return
        outcome = self.compile(current["program_code"])
        if not self._ending.is_set():
            self._pipelines.change_by_id(row["id"], _if_still(guard, program_outcome(outcome), refresh=True))


def program_outcome(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """What a pipeline's row has after its program was compiled."""
    status = outcome["status"]
    messages = outcome.get("messages", [])
    compilation = {"exit_code": 0 if status == ProgramStatus.SUCCESS else 1, "messages": messages}
    error: dict[str, Any] = dict(NO_PROGRAM_ERROR)
    if status in (ProgramStatus.SUCCESS, ProgramStatus.SQL_ERROR):
        error["sql_compilation"] = compilation
    else:
        status = ProgramStatus.SYSTEM_ERROR.value
        error["system_error"] = str(outcome.get("error"))
    info = outcome["program_info"] if status == ProgramStatus.SUCCESS else None
    return {"program_status": status, "program_error": error, "program_info": info}


def validation(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """The same as the answer to a request that only asks."""
    found = program_outcome(outcome)
    if found["program_status"] == ProgramStatus.SUCCESS:
        return {"Success": {"program_info": found["program_info"]}}
    if found["program_status"] == ProgramStatus.SQL_ERROR:
        return {"SqlError": {"info": found["program_error"]["sql_compilation"]}}
    return {"SystemError": {"error": found["program_error"]["system_error"]}}


def _if_still(guard: int, values: Mapping[str, Any], *, refresh: bool = False) -> Change:
    """Changes a row only while it has the program that was compiled, and while it is not deployed."""

    def change(row: Row) -> Mapping[str, Any]:
        if row["program_version"] != guard or row["deployment_resources_status"] != ResourcesStatus.STOPPED:
            return {}
        return {**values, "refresh_version": row["refresh_version"] + 1} if refresh else values

    return change


def _refusal(error: RunnerRefusedError) -> tuple[str, str, Any]:
    try:
        body = error.answer.json()
        return body["error_code"], body["message"], body.get("details")
    except (ValueError, KeyError, TypeError):
        return "CompilerUnavailable", str(error), None
