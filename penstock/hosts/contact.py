"""How a host finds its coordinator, and what it says to it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import httpx
from pydantic import TypeAdapter, ValidationError

from penstock.errors import HostError
from penstock.hosts.messages import COORDINATOR_FILE, Admission, CheckIn, Place

_ANSWER_SECONDS = 3.0
_ADMISSION: TypeAdapter[Admission] = TypeAdapter(Admission)
_PLACE: TypeAdapter[Place] = TypeAdapter(Place)


class AwayError(HostError):
    """The coordinator cannot be asked now."""


class OverError(AwayError):
    """It says that its run is over."""


class Contact:
    """The coordinator that `coordinator` means: its file, the storage directory that has it, or a URL."""

    def __init__(self, coordinator: str, secret_file: Path | None = None) -> None:
        self._secret_file = secret_file
        if coordinator.startswith("https://"):
            raise HostError(
                f"{coordinator}: a coordinator speaks http:// and no TLS. Nothing between hosts is encrypted:"
                " use a private network, or an encrypted one, and http://"
            )
        self._url = coordinator.rstrip("/") if coordinator.startswith("http://") else None
        if self._url is not None and secret_file is None:
            raise HostError(
                f"to check in at {coordinator} give --secret-file: a copy of hosts.secret, which is in the"
                " storage directory of the pipeline"
            )
        path = Path(coordinator).absolute()
        self._file = path if path.suffix == ".json" else path / COORDINATOR_FILE
        self._place: tuple[str, str] | None = None
        self._http = httpx.Client(timeout=_ANSWER_SECONDS, trust_env=False)

    def __str__(self) -> str:
        return f"the coordinator at {self._place[0] if self._place else self._url or self._file}"

    def check_in(self, said: CheckIn) -> Admission:
        """`AwayError` if there is nobody to ask, `HostError` if this host is refused."""
        url, secret = self._place = self._place or self._find()
        try:
            answer = self._http.post(
                f"{url}/hosts/check-in",
                json=asdict(said),
                headers={"Authorization": f"Bearer {secret}"},
            )
        except httpx.TransportError as error:
            self._place = None  # it may be elsewhere by now
            reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error)
            raise AwayError(f"the coordinator at {url} does not answer ({reason})") from error
        try:
            return self._admission(answer, url)
        except AwayError:
            self._place = None
            raise

    def _admission(self, answer: httpx.Response, url: str) -> Admission:
        try:
            body = answer.json()
            if answer.is_success:
                return _ADMISSION.validate_python(body)
            message, name = str(body["message"]), body["error_code"]
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise AwayError(f"{url} answers, but is no coordinator of Penstock") from error
        if name == "Over":
            raise OverError(message)
        if answer.status_code in (401, 500):  # another coordinator may listen there by now
            raise AwayError(f"the coordinator at {url}: {message}")
        raise HostError(f"the coordinator at {url} refuses this host: {message}")

    def _find(self) -> tuple[str, str]:
        if self._url is not None and self._secret_file is not None:
            return self._url, self._secret(self._secret_file)
        try:
            place = _PLACE.validate_python(json.loads(self._file.read_text("utf-8")))
        except FileNotFoundError as error:
            raise AwayError(f"{self._file} is not there: the pipeline does not run") from error
        except OSError as error:
            raise AwayError(f"{self._file} cannot be read: {error.strerror}") from error
        except (ValueError, ValidationError) as error:
            raise AwayError(f"{self._file} does not say where a coordinator is") from error
        secret = place.secret if self._secret_file is None else self._secret(self._secret_file)
        return place.url, secret

    @staticmethod
    def _secret(path: Path) -> str:
        try:
            return path.read_text("utf-8").strip()
        except OSError as error:
            raise HostError(f"the secret file {path} cannot be read: {error.strerror}") from error

    def close(self) -> None:
        self._http.close()
