"""A Confluent schema registry: Avro schemas by their number, and numbers for new ones.

It is asked by plain HTTP: the client that Confluent offers cannot send headers of one's own, and takes a
token only together with the name of one of Confluent's clusters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from penstock.connectors.config import Section
from penstock.errors import ConnectorError, NoSchemaError, UnreachableError
from penstock.references import has_reference, redacted, resolved

if TYPE_CHECKING:
    import httpx

FIELDS = (
    "registry_urls",
    "registry_headers",
    "registry_proxy",
    "registry_timeout_secs",
    "registry_username",
    "registry_password",
    "registry_authorization_token",
)

TIMEOUT_SECONDS = 5
"""How long an answer may take where the configuration does not say."""

MISSING_SECONDS = 30.0
"""How long a schema may not be there before a message is put aside for it."""

_SECRETS = ("registry_password", "registry_authorization_token")
_CONTENT = "application/vnd.schemaregistry.v1+json"
_LATER = (408, 425, 429)
"""Statuses that, like those from 500 on, may be others next time."""


def without_registry(formatted: Any) -> Any:
    """A format without how its registry is reached, which may be another after a restart.

    >>> without_registry({"name": "avro", "config": {"registry_urls": ["http://r"], "schema": "{}"}})
    {'name': 'avro', 'config': {'schema': '{}'}}
    """
    if not isinstance(formatted, Mapping) or not isinstance(formatted.get("config"), Mapping):
        return formatted
    kept = {name: value for name, value in formatted["config"].items() if name not in FIELDS}
    return {**formatted, "config": kept}


@dataclass(frozen=True)
class SchemaRegistry:
    """How a registry is reached, with references to secrets unresolved: plain data, also for tasks."""

    where: str
    urls: tuple[str, ...]
    """Servers of one registry; the next is asked if one does not answer."""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    proxy: str | None = None
    timeout: float = TIMEOUT_SECONDS
    username: str | None = None
    password: str | None = None
    token: str | None = None
    _known: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _missed: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """When it was seen for the first time that a schema is not there."""

    @classmethod
    def of(cls, config: Section) -> SchemaRegistry | None:
        """The registry that a format's configuration names; None if it names none."""
        urls = config.get("registry_urls", list, [])
        if not urls:
            for name in FIELDS:
                if config.values.get(name):
                    raise ConnectorError(
                        f"{config.path}.{name}: only together with 'registry_urls', a list of URLs"
                    )
            return None
        if not all(isinstance(url, str) and url.startswith(("http://", "https://")) for url in urls):
            raise ConnectorError(f"{config.path}.registry_urls: expected a list of URLs, found {urls!r}")
        if any(urlsplit(url).username is not None for url in urls):
            raise ConnectorError(
                f"{config.path}.registry_urls: a URL must not have a user and a password; set"
                " 'registry_username' and 'registry_password'"
            )
        headers = config.get("registry_headers", dict, {})
        if not all(isinstance(value, str) for value in headers.values()):
            raise ConnectorError(f"{config.path}.registry_headers: expected an object of strings")
        for name, value in headers.items():
            if name.lower() == "authorization" and not has_reference(value):
                raise ConnectorError(
                    f"{config.path}.registry_headers.{name}: a secret must not stand in a program; write"
                    " ${env:NAME} with the name of an environment variable of the driver and the executors"
                )
        for name in _SECRETS:
            if (secret := config.optional(name, str)) is not None and not has_reference(secret):
                raise ConnectorError(
                    f"{config.path}.{name}: a secret must not stand in a program; put it into an environment"
                    " variable of the driver and the executors, and write ${env:NAME} with its name here"
                )
        proxy = config.optional("registry_proxy", str)
        if proxy is not None and (secret := urlsplit(proxy).password) and not has_reference(secret):
            raise ConnectorError(
                f"{config.path}.registry_proxy: a password must not stand in a program; write ${{env:NAME}}"
                " in its place, with the name of an environment variable of the driver and the executors"
            )
        username = config.optional("registry_username", str)
        password, token = (config.optional(name, str) for name in _SECRETS)
        if (username is None) != (password is None):
            raise ConnectorError(f"{config.path}: 'registry_username' and 'registry_password' go together")
        if username is not None and token is not None:
            raise ConnectorError(
                f"{config.path}.registry_authorization_token: not together with 'registry_username'"
            )
        return cls(
            config.path,
            tuple(url.rstrip("/") for url in urls),
            headers,
            proxy,
            config.count("registry_timeout_secs", least=1) or TIMEOUT_SECONDS,
            username,
            password,
            token,
        )

    def schema(self, number: int) -> Any:
        """The Avro schema with this number, as JSON; what was asked for once is known."""
        if number not in self._known:
            try:
                told = self._ask("GET", f"/schemas/ids/{number}", f"cannot get the schema {number}")
            except NoSchemaError:
                self._missed.setdefault(number, time.monotonic())
                raise
            if told.get("schemaType", "AVRO") != "AVRO":
                raise NoSchemaError(f"{self.where}: schema {number} is not Avro but {told['schemaType']}")
            try:
                self._known[number] = json.loads(told["schema"])
            except (KeyError, TypeError, ValueError) as error:
                raise NoSchemaError(f"{self.where}: schema {number} cannot be read ({error})") from error
        return self._known[number]

    def may_come(self, number: int) -> bool:
        """Whether a schema that is not there may be on its way from another server of the registry."""
        return time.monotonic() - self._missed.get(number, -inf) < MISSING_SECONDS

    def register(self, subject: str, schema: Any) -> int:
        """The number of a schema, a new one if the subject did not have it."""
        told = self._ask(
            "POST",
            f"/subjects/{quote(subject, safe='')}/versions",
            f"cannot register a schema for {subject}",
            {"schema": json.dumps(schema)},
        )
        try:
            return int(told["id"])
        except (KeyError, TypeError, ValueError):
            raise ConnectorError(
                f"{self.where}: cannot register a schema for {subject}: the answer has no id: {told!r}"
            ) from None

    def _ask(
        self, method: str, path: str, doing: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        import httpx  # takes a while, and few programs need it

        auth = None
        if self.username is not None and self.password is not None:
            auth = (resolved(self.username), resolved(self.password))
        headers = {name: resolved(value) for name, value in self.headers.items()}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {resolved(self.token)}"
        if body is not None:
            headers["Content-Type"] = _CONTENT
        proxy = None if self.proxy is None else resolved(self.proxy)
        silent: list[str] = []
        with httpx.Client(
            auth=auth, headers={"Accept": f"{_CONTENT}, application/json", **headers}, proxy=proxy,
            timeout=self.timeout, follow_redirects=True,
        ) as client:  # fmt: skip
            for url in self.urls:
                try:
                    answer = client.request(method, url + path, json=body)
                except httpx.TransportError as error:
                    silent.append(f"{url}: {redacted(str(error)) or type(error).__name__}")
                    continue
                if answer.status_code >= 500 or answer.status_code in _LATER:
                    silent.append(f"{url}: {_said(answer)}")
                    continue
                return self._accepted(answer, doing, url)
        raise UnreachableError(f"{self.where}: {doing}: {'; '.join(silent)}")

    def _accepted(self, answer: httpx.Response, doing: str, url: str) -> dict[str, Any]:
        if answer.is_success:
            try:
                told = answer.json()
            except ValueError:
                told = None
            if isinstance(told, dict):
                return told
        kind = NoSchemaError if answer.status_code == 404 else ConnectorError
        raise kind(f"{self.where}: {doing} ({url}): {_said(answer)}")


def _said(answer: httpx.Response) -> str:
    """What the registry has to say, in one line."""
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = answer.text[:200] or answer.reason_phrase
    return f"HTTP {answer.status_code}: {' '.join(message.split())}"
