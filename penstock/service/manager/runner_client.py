"""What the manager itself asks of runners; what users ask is passed on by `proxy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from penstock.service.manager.runners import Endpoint, Runner

_ANSWER_SECONDS = 5.0
_COMPILE_SECONDS = 300.0


class RunnerUnreachableError(Exception):
    """A runner does not answer, or not with what was expected."""


class RunnerRefusedError(RunnerUnreachableError):
    """A runner answers that it will not; its refusal is in the one form of errors."""

    def __init__(self, path: str, answer: httpx.Response) -> None:
        super().__init__(f"{path} answered {answer.status_code}: {_message(answer)}")
        self.answer = answer


class RunnerClient:
    """May be used by several threads at once."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.Client(timeout=_ANSWER_SECONDS, limits=limits, trust_env=False)

    def status(self, runner: Runner) -> dict[str, Any]:
        return self._json("GET", runner, "/status")

    def deploy(self, runner: Runner, order: Mapping[str, Any]) -> None:
        self._send("POST", runner, "/deploy", order)

    def stop(self, runner: Runner) -> None:
        self._send("POST", runner, "/stop")

    def tell(self, runner: Runner, path: str) -> None:
        """Pass on an order that has no body: `/pause`, `/resume` and the like, perhaps with a query."""
        self._send("POST", runner, path)

    def compile(self, runner: Runner, program: str) -> dict[str, Any]:
        return self._json("POST", runner, "/compile", {"program_code": program}, _COMPILE_SECONDS)

    def explain(self, runner: Runner, program: str) -> dict[str, Any]:
        return self._json("POST", runner, "/explain", {"program_code": program}, _COMPILE_SECONDS)

    def diff(self, runner: Runner, old: str, new: str) -> dict[str, Any]:
        return self._json("POST", runner, "/diff", {"old": old, "new": new}, _COMPILE_SECONDS)

    def get(self, runner: Runner, path: str) -> httpx.Response:
        """Any answer of a runner, also a refusal."""
        return self._request("GET", runner, path, None, _ANSWER_SECONDS)

    def close(self) -> None:
        self._http.close()

    def _json(
        self, method: str, runner: Runner, path: str, body: Any = None, seconds: float = _ANSWER_SECONDS
    ) -> dict[str, Any]:
        answer = self._send(method, runner, path, body, seconds)
        try:
            found = answer.json()
        except ValueError as error:
            raise RunnerUnreachableError(f"{path} answered with what is no JSON") from error
        if not isinstance(found, dict):
            raise RunnerUnreachableError(f"{path} answered with what is no object")
        return found

    def _send(
        self, method: str, runner: Runner, path: str, body: Any = None, seconds: float = _ANSWER_SECONDS
    ) -> httpx.Response:
        answer = self._request(method, runner, path, body, seconds)
        if answer.is_error:
            raise RunnerRefusedError(path, answer)
        return answer

    def _request(self, method: str, runner: Runner, path: str, body: Any, seconds: float) -> httpx.Response:
        endpoint = runner.endpoint()
        if endpoint is None:
            raise RunnerUnreachableError("it has not said yet where it listens")
        try:
            return self._http.request(
                method, endpoint.url + path, json=body, headers=authorization(endpoint), timeout=seconds
            )
        except httpx.HTTPError as error:
            raise RunnerUnreachableError(f"{path}: {str(error) or type(error).__name__}") from error


def authorization(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.token}"}


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]
