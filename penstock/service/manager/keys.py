"""API keys: long random texts, of which only a hash is kept."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from penstock.service.errors import ApiError
from penstock.service.manager.clock import now
from penstock.service.manager.database import Database
from penstock.service.manager.pipelines import duplicate_name
from penstock.service.manager.schema import api_keys

PREFIX = "apikey:"
_BYTES = 32


class ApiKeys:
    """Made once, shown once, found by their hash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, role: str) -> dict[str, Any]:
        """A new key: the only time that it is told."""
        key = PREFIX + secrets.token_urlsafe(_BYTES)
        row = {"id": str(uuid.uuid4()), "name": name, "role": role, "hash": _hash(key), "created_at": now()}
        try:
            with self._database.write() as connection:
                connection.execute(insert(api_keys).values(row))
        except IntegrityError as error:
            raise duplicate_name() from error
        return {"id": row["id"], "name": name, "api_key": key}

    def all(self) -> list[dict[str, Any]]:
        with self._database.read() as connection:
            query = select(api_keys.c.id, api_keys.c.name, api_keys.c.role).order_by(api_keys.c.name)
            return [dict(row._mapping) for row in connection.execute(query)]

    def get(self, name: str) -> dict[str, Any]:
        for key in self.all():
            if key["name"] == name:
                return key
        raise _unknown(name)

    def delete(self, name: str) -> None:
        with self._database.write() as connection:
            if connection.execute(delete(api_keys).where(api_keys.c.name == name)).rowcount == 0:
                raise _unknown(name)

    def role_of(self, key: str) -> str | None:
        """What a key may do; None if it is not one of ours."""
        if not key.startswith(PREFIX):
            return None
        with self._database.read() as connection:
            query = select(api_keys.c.role).where(api_keys.c.hash == _hash(key))
            found: str | None = connection.execute(query).scalar_one_or_none()
            return found

    def is_empty(self) -> bool:
        with self._database.read() as connection:
            return connection.execute(select(func.count()).select_from(api_keys)).scalar_one() == 0


def _hash(key: str) -> str:
    """A key has 256 random bits, so a fast hash is enough: nobody finds it by trying."""
    return hashlib.sha256(key.encode()).hexdigest()


def _unknown(name: str) -> ApiError:
    return ApiError(404, "UnknownApiKey", f"Unknown API key '{name}'", {"name": name})
