"""How a PostgreSQL server is reached, and what its errors mean."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.connectors.config import Section
from penstock.errors import ConnectorError, UnreachableError
from penstock.references import has_reference, resolved

TLS_FIELDS = (
    "ssl_ca_pem",
    "ssl_ca_location",
    "ssl_client_pem",
    "ssl_client_location",
    "ssl_client_key",
    "ssl_client_key_location",
    "ssl_certificate_chain_location",
    "verify_hostname",
)
_FILES = {
    "sslrootcert": ("ssl_ca_pem", "ssl_ca_location"),
    "sslcert": ("ssl_client_pem", "ssl_client_location", "ssl_certificate_chain_location"),
    "sslkey": ("ssl_client_key", "ssl_client_key_location"),
}
"""What libpq calls a file -> the fields that give it; the first of them holds the text itself."""

_AGAIN = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE for what may go away: connection, conflict, resources, locks, operator, system."""

_IDLE = "25P03"
"""A session that stood still in a transaction for too long, perhaps because this machine slept."""

_REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba.conf entry|certificate|permission"
)
"""What a server, or libpq, says at connection when trying again does not help: there is no SQLSTATE then."""


SESSION = {
    "TimeZone": "UTC",
    # A server does not notice that a client is gone. What its connection holds is let go after a while, and
    # whoever waits for that asks again instead of waiting without end.
    "idle_in_transaction_session_timeout": "60s",
    "lock_timeout": "10s",
}
"""Settings of every connection."""


@dataclass(frozen=True)
class Server:
    """A database, with references to secrets unresolved."""

    where: str
    uri: str
    files: dict[str, str]
    """libpq's name -> path."""
    texts: dict[str, str]
    """libpq's name -> what the file is to hold."""
    verify_hostname: bool

    @classmethod
    def of(cls, config: Section) -> Server:
        uri = config.required("uri", str)
        if not has_reference(uri):
            _parsed(uri, config.path)
        files: dict[str, str] = {}
        texts: dict[str, str] = {}
        for name, fields in _FILES.items():
            given = [field for field in fields if config.optional(field, str) is not None]
            if len(given) > 1:
                raise ConnectorError(f"{config.path}: give only one of {' and '.join(given)}")
            if given:
                (texts if given[0] == fields[0] else files)[name] = config.required(given[0], str)
        trusted = {**files, **texts}
        if config.optional("verify_hostname", bool) is not None and "sslrootcert" not in trusted:
            raise ConnectorError(f"{config.path}.verify_hostname: needs ssl_ca_pem or ssl_ca_location")
        if ("sslcert" in trusted) != ("sslkey" in trusted):
            raise ConnectorError(f"{config.path}: a client certificate and its key are given together")
        return cls(config.path, uri, files, texts, config.get("verify_hostname", bool, True))

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection, whose commits are durable when they return."""
        settings = _parsed(resolved(self.uri), self.where)
        settings = {"connect_timeout": "10", "keepalives_idle": "30", **settings, **self.files}
        with tempfile.TemporaryDirectory() as directory:  # libpq reads them while it connects
            for name, text in self.texts.items():
                settings[name] = os.path.join(directory, name)
                with open(os.open(settings[name], os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                    file.write(resolved(text))
            if "sslrootcert" in settings:
                settings["sslmode"] = "verify-full" if self.verify_hostname else "verify-ca"
            connection = psycopg.connect(**settings)
        try:
            for name, value in SESSION.items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )
            connection.commit()
        except psycopg.Error:
            connection.close()
            raise
        return connection

    @property
    def shown(self) -> str:
        """The database, for people, without its secrets."""
        settings = _parsed(resolved(self.uri), self.where)
        place = ":".join(str(settings[name]) for name in ("host", "port") if name in settings)
        return f"{place or 'localhost'}/{settings.get('dbname', settings.get('user', ''))}"

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn what psycopg raises into what it means for the pipeline."""
        try:
            yield
        except psycopg.Error as error:
            said = f"{doing} ({self.shown}): {' '.join(str(error).split())}"
            again = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            if error.sqlstate is not None:
                again = error.sqlstate[:2] in _AGAIN or error.sqlstate == _IDLE
            elif again:
                again = not _REFUSED.search(said)
            raise (UnreachableError if again else ConnectorError)(said) from error


def _parsed(uri: str, where: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(uri))
    except psycopg.ProgrammingError as error:
        # libpq may quote the whole text, and with it a password.
        raise ConnectorError(
            f"{where}.uri: expected 'postgresql://user:password@host:port/database' or 'host=... dbname=...'"
        ) from error
