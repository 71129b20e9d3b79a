"""The manager's database: new, older, newer, shared."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from penstock.service.errors import ApiError
from penstock.service.manager import migrations
from penstock.service.manager.bodies import PostPutPipeline
from penstock.service.manager.database import Database, DatabaseError
from penstock.service.manager.events import KEPT, count
from penstock.service.manager.migrations import LATEST, DatabaseVersionError, migrate
from penstock.service.manager.pipelines import Pipelines
from penstock.service.manager.schema import metadata
from tests.service.conftest import OpenDatabase


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'manager.db'}"


def fields(name: str = "p") -> dict[str, Any]:
    return PostPutPipeline(name=name, program_code="x").fields()


def columns(database: Database) -> dict[str, set[str]]:
    with database.read() as connection:
        return {
            name: {row[1] for row in connection.execute(text(f"PRAGMA table_info({name})"))}
            for name in metadata.tables
        }


def expected() -> dict[str, set[str]]:
    return {name: {column.name for column in table.columns} for name, table in metadata.tables.items()}


def test_an_empty_database_gets_every_table(url: str, database_at: OpenDatabase) -> None:
    database = database_at(url)
    assert database.open() == list(range(1, LATEST + 1))
    assert columns(database) == expected()
    assert database.open() == []


@pytest.mark.parametrize("version", range(LATEST))
def test_an_older_database_is_brought_up_to_date(url: str, database_at: OpenDatabase, version: int) -> None:
    old = database_at(url)
    with old.write() as connection:
        migrate(connection, version)
        if version:
            row: dict[str, Any] = dict.fromkeys(columns_of(connection), "1") | {"name": "old"}
            row |= dict.fromkeys(("runtime_config", "program_config", "program_error", "tags"), "{}")
            for name in ("storage_status_details", "program_info", "deployment_error"):
                row[name] = None
            row |= {name: None for name in row if name.endswith("details")}
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO pipelines ({names}) VALUES ({values})"), row)
    database = database_at(url)
    assert database.open() == list(range(version + 1, LATEST + 1))
    assert columns(database) == expected()
    pipelines = Pipelines(database)
    assert [found["name"] for found in pipelines.all()] == (["old"] if version else [])
    pipelines.create(fields())


def columns_of(connection: Any) -> list[str]:
    return [row[1] for row in connection.execute(text("PRAGMA table_info(pipelines)"))]


def test_a_newer_database_is_refused(url: str, database_at: OpenDatabase) -> None:
    database = database_at(url)
    database.open()
    with database.write() as connection:
        connection.execute(text("UPDATE schema_version SET version = 99"))
    with pytest.raises(DatabaseVersionError, match="version 99"):
        database.open()


def test_a_migration_that_fails_changes_nothing(
    url: str, database_at: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = migrations.Migration(LATEST + 1, "broken", ("CREATE TABLE half (x INTEGER)", "CREATE NONSENSE"))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, broken))
    database = database_at(url)
    with database.write() as connection:
        migrate(connection, LATEST)
    with pytest.raises(Exception, match="NONSENSE"), database.write() as connection:
        migrate(connection, LATEST + 1)
    with database.read() as connection:
        assert connection.execute(text("SELECT version FROM schema_version")).scalar_one() == LATEST
        assert (
            connection.execute(text("SELECT count(*) FROM sqlite_master WHERE name = 'half'")).scalar_one()
            == 0
        )


def test_two_that_open_it_at_once(url: str, database_at: OpenDatabase) -> None:
    done: list[int] = []
    threads = [threading.Thread(target=lambda: done.extend(database_at(url).open())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(1, LATEST + 1))


def test_many_who_write_at_once_wait_for_each_other(url: str, database_at: OpenDatabase) -> None:
    database = database_at(url)
    database.open()
    pipelines = Pipelines(database)
    pipelines.create(fields())

    def count_up() -> None:
        for _ in range(20):
            pipelines.change("p", lambda row: {"refresh_version": row["refresh_version"] + 1})

    threads = [threading.Thread(target=count_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pipelines.get("p")["refresh_version"] == 161


def test_events_are_kept_to_a_limit(url: str, database_at: OpenDatabase) -> None:
    database = database_at(url)
    database.open()
    pipelines = Pipelines(database)
    id_ = pipelines.create(fields())["id"]
    for number in range(KEPT + 30):
        pipelines.change("p", lambda _row, number=number: {"deployment_runtime_status": str(number)})
    with database.read() as connection:
        assert count(connection, id_) == KEPT
    pipelines.change("p", lambda _row: {"deployment_runtime_status": None})
    pipelines.delete("p")
    with database.read() as connection:
        assert count(connection, id_) == 0


def test_a_refusal_leaves_nothing_behind(url: str, database_at: OpenDatabase) -> None:
    database = database_at(url)
    database.open()
    pipelines = Pipelines(database)
    pipelines.create(fields())
    with pytest.raises(ApiError, match="already exists"):
        pipelines.create(fields())
    assert [row["version"] for row in pipelines.all()] == [1]


@pytest.mark.parametrize("wrong", ["mysql://x/y", "nonsense", "sqlite:////nowhere/at/all.db"])
def test_databases_that_cannot_be_used(wrong: str, database_at: OpenDatabase) -> None:
    with pytest.raises(DatabaseError):
        database_at(wrong).open()


@pytest.mark.parametrize(
    "trouble", [{"sync_failure": "access denied (HTTP 403)"}, {"stalled": {"out": "it does not answer"}}]
)
def test_a_copy_that_fails_and_an_output_that_stalls_are_events(
    trouble: dict[str, object], url: str, database_at: OpenDatabase
) -> None:
    database = database_at(url)
    database.open()
    pipelines = Pipelines(database)
    row = pipelines.create(fields())

    def told(details: dict[str, object] | None) -> int:
        pipelines.change("p", lambda _: {"deployment_runtime_status_details": details})
        with database.read() as connection:
            return count(connection, row["id"])

    before = told(None)
    assert told(trouble) == before + 1
    assert told(trouble) == before + 1  # the same again
    assert told(None) == before + 2  # it is over
