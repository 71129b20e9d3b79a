"""The manager's database can be a PostgreSQL server."""

from __future__ import annotations

import threading
import uuid

import psycopg
import pytest

from penstock.service.errors import ApiError
from penstock.service.manager.database import DatabaseError
from penstock.service.manager.events import count
from penstock.service.manager.keys import ApiKeys
from penstock.service.manager.migrations import LATEST, migrate
from penstock.service.manager.pipelines import Pipelines
from tests.servers import Postgres
from tests.service.conftest import OpenDatabase
from tests.service.test_service_database import fields


@pytest.fixture
def url(postgres: Postgres) -> str:
    name = f"manager_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.uri(name)


def test_it_is_made_and_brought_up_to_date(url: str, database_at: OpenDatabase) -> None:
    old = database_at(url)
    with old.write() as connection:
        assert migrate(connection, 1) == [1]
    assert database_at(url).open() == list(range(2, LATEST + 1))
    assert database_at(url).open() == []


def test_two_that_open_it_at_once(url: str, database_at: OpenDatabase) -> None:
    done: list[int] = []
    threads = [threading.Thread(target=lambda: done.extend(database_at(url).open())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(1, LATEST + 1))


def test_pipelines_and_keys(url: str, database_at: OpenDatabase) -> None:
    database = database_at(url)
    database.open()
    pipelines = Pipelines(database)
    row = pipelines.create(fields())
    assert pipelines.get("p") == row
    assert pipelines.uncompiled() == [row]
    assert pipelines.unsettled() == []
    with pytest.raises(ApiError, match="already exists"):
        pipelines.create(fields())

    def count_up() -> None:
        for _ in range(10):
            pipelines.change("p", lambda row: {"refresh_version": row["refresh_version"] + 1})

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pipelines.get("p")["refresh_version"] == 41
    pipelines.edit("p", {"program_code": "new"})
    assert pipelines.get("p")["program_version"] == 2
    with database.read() as connection:
        assert count(connection, row["id"]) == 1
    key = ApiKeys(database).create("k", "read")["api_key"]
    assert ApiKeys(database).role_of(key) == "read"
    pipelines.delete("p")
    assert pipelines.all() == []


def test_a_server_that_is_not_there(url: str, database_at: OpenDatabase) -> None:
    with pytest.raises(DatabaseError) as error:
        database_at("postgresql://someone:secret@127.0.0.1:1/none").open()
    assert "secret" not in str(error.value)


def test_one_manager_at_a_time(url: str, database_at: OpenDatabase) -> None:
    first, second = database_at(url), database_at(url)
    first.open()
    first.hold()
    with pytest.raises(DatabaseError, match="in use by another manager"):
        second.hold()
    first.close()
    database_at(url).hold()
