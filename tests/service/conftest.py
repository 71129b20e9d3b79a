from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.service.manager.database import Database
from tests.service.commands import Commands
from tests.service.managers import Manager

StartManager = Callable[..., Manager]
OpenDatabase = Callable[[str], Database]


@pytest.fixture
def database_at() -> Iterator[OpenDatabase]:
    """Databases by URL, all closed at the end."""
    databases: list[Database] = []

    def make(url: str) -> Database:
        databases.append(Database(url))
        return databases[-1]

    yield make
    for database in databases:
        database.close()


@pytest.fixture
def start_manager(tmp_path: Path) -> Iterator[StartManager]:
    """Starts managers; all of them in one directory, one after the other."""
    managers: list[Manager] = []

    def start(spares: int = 1, auth: bool = False) -> Manager:
        managers.append(Manager(tmp_path / "service", spares=spares, auth=auth))
        return managers[-1]

    yield start
    for manager in managers:
        manager.end()


@pytest.fixture
def manager(start_manager: StartManager) -> Manager:
    return start_manager()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """One manager for tests that only need pipelines of their own."""
    found = Manager(tmp_path_factory.mktemp("shared") / "service")
    yield found
    found.end()


@pytest.fixture(scope="module")
def cli(shared: Manager, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The command line as a client of the shared manager."""
    return Commands(shared.url, tmp_path_factory.mktemp("home"))
