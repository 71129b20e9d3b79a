"""What tests of hosts share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.running import Alone


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    """An agent that has checked in, as host 1 of 2."""
    found = Alone(tmp_path / "host")
    found.join()
    yield found
    found.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts and coordinator take each other for lost after two seconds."""
    for place in ("registry.LOST_SECONDS", "process.LOST_SECONDS"):
        monkeypatch.setattr(f"penstock.hosts.{place}", 2.0)
    monkeypatch.setattr("penstock.hosts.process.SIGN_SECONDS", 0.1)
