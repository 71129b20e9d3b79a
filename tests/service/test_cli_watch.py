"""Looking after pipelines by commands: statistics, logs, checkpoints, transactions, programs, keys."""

from __future__ import annotations

import json
import signal
import zipfile
from pathlib import Path

import pytest

from tests.service.commands import Commands, Terminal
from tests.service.conftest import StartManager
from tests.service.managers import Manager
from tests.service.test_service_pipelines import new_name


@pytest.fixture(scope="module")
def running(shared: Manager) -> str:
    name = new_name()
    shared.start(name, "shop")
    return name


def test_stats_and_metrics(cli: Commands, running: str) -> None:
    drawn = cli.ok("stats", running).out
    assert "1,234" in drawn
    assert "orders.orders_file" in drawn
    assert "Unhealthy: the disk is full" in drawn
    assert cli.ok("stats", running, "--format", "json").json["global_metrics"]["state"] == "Running"
    assert cli.ok("metrics", running).out == f'stand_in{{pipeline="{running}"}} 1\n'
    assert cli.ok("metrics", running, "--format", "json").json[0]["key"] == "stand_in"


def test_logs(cli: Commands, running: str) -> None:
    assert cli.ok("logs", running).out.splitlines()[-1] == f"deployed {running}"
    assert cli.ok("logs", running, "--format", "json").lines[-1] == {"line": f"deployed {running}"}
    with cli.begun("logs", running, "--follow") as process:
        while process.stdout.readline() != f"deployed {running}\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_events(cli: Commands, running: str) -> None:
    latest = cli.ok("events", running, "--format", "json").json[0]
    assert latest["deployment_runtime_status"] == "Running"
    assert "Provisioned" in cli.ok("events", running).out


def test_support_bundle(cli: Commands, running: str, tmp_path: Path) -> None:
    file = tmp_path / "bundle.zip"
    assert str(file) in cli.ok("support-bundle", running, "-o", file).out
    with zipfile.ZipFile(file) as bundle:
        assert "pipeline.json" in bundle.namelist()
    assert cli("support-bundle", running, "-o", tmp_path / "none" / "bundle.zip").code == 1


def test_checkpoints(cli: Commands, running: str) -> None:
    assert "is taken" in cli.ok("checkpoint", "take", running, "--name", "before-migration").out
    failed = cli("checkpoint", "take", running, "--name", "fails")
    assert failed.code == 1
    assert "the disk is full" in failed.err
    asked = cli.ok("checkpoint", "take", running, "--no-wait", "--format", "json").json
    assert asked["checkpoint_sequence_number"] == 3
    assert "number 2: the disk is full" in cli.ok("checkpoint", "status", running).out
    assert "before-migration" in cli.ok("checkpoint", "list", running).out
    assert len(cli.ok("checkpoint", "list", running, "--json").json) == 2


def test_copies_of_checkpoints(cli: Commands, running: str) -> None:
    assert "is copied" in cli.ok("checkpoint", "sync", running).out
    assert "being copied" in cli.ok("checkpoint", "sync", running, "--no-wait").out
    found = cli.ok("checkpoint", "sync-status", running, "--format", "json").json
    assert found["success"] in cli.ok("checkpoint", "sync-status", running).out
    assert found["success"] in cli.ok("checkpoint", "remote", running).out


def test_transactions(cli: Commands, running: str) -> None:
    refused = cli("transaction", "commit", running)
    assert refused.code == 4
    assert f"penstock transaction start {running}" in refused.err
    assert cli.ok("transaction", "start", running).out == "Transaction 1 is open.\n"
    assert "TransactionInProgress" in cli.ok("transaction", "status", running).out
    assert cli.ok("transaction", "commit", running).out == "Transaction 1 is committed.\n"
    cli.ok("transaction", "start", running)
    assert cli.ok("transaction", "rollback", running, "--format", "json").json == {"transaction_id": 2}
    none = cli.ok("transaction", "status", running, "--format", "json").json
    assert none["transaction_status"] == "NoTransaction"


def test_connectors(cli: Commands, running: str) -> None:
    assert "paused" in cli.ok("connector", "pause", running, "orders", "orders_file").out
    found = cli.ok("connector", "stats", running, "orders", "orders_file", "--format", "json").json
    assert found["paused"] is True
    cli.ok("connector", "start", running, "orders", "orders_file")
    shown = cli.ok("connector", "stats", running, "orders", "orders_file").out
    assert "line 9 is no JSON" in shown
    assert "the disk is full" in cli.ok("connector", "stats", running, "by_region", "out").out
    assert cli("connector", "stats", running, "orders", "nobody").code == 3


def test_programs(cli: Commands, shared: Manager, tmp_path: Path) -> None:
    name = new_name()
    shared.create(name, "good")
    new = tmp_path / "new.sql"
    new.write_text("better\n")
    assert cli.ok("program", "get", name).out == "good\n"
    assert "modified view" in cli.ok("program", "diff", name, new).out
    assert "version 2" in cli.ok("program", "set", name, new).out
    assert "no errors" in cli.ok("program", "errors", name).out
    assert cli.ok("program", "check", new).out == f"{new}: no errors\n"
    checked = cli("program", "check", "-", given="\n bad")
    assert checked.code == 1
    assert "-:2:2" in checked.err
    assert cli("program", "set", name, "-", given="bad").code == 1
    errors = cli("program", "errors", name, "--format", "json")
    assert errors.code == 1
    assert json.loads(errors.err)["details"]["sql_compilation"]["messages"][0]["message"] == "bad program"
    status = cli.ok("program", "status", name, "--format", "json").json
    assert (status["program_status"], status["program_version"]) == ("SqlError", 3)


def test_configuration(cli: Commands, shared: Manager, running: str) -> None:
    name = new_name()
    shared.create(name)
    settings = ("workers=5", "storage.compression=snappy")
    changed = cli.ok("config", "set", name, *settings, "--format", "json").json
    assert (changed["workers"], changed["storage"]["compression"]) == (5, "snappy")
    cli.ok("config", "set", name, "--file", "-", given='{"workers": 2}')
    found = cli.ok("config", "get", name).json
    assert (found["workers"], found["storage"]["compression"]) == (2, "default")
    assert cli("config", "set", name, "no_such=1").code == 2
    refused = cli("config", "set", running, "workers=1")
    assert refused.code == 4
    assert f"penstock stop {running}" in refused.err


def test_keys(start_manager: StartManager, tmp_path: Path) -> None:
    manager = start_manager(spares=0, auth=True)
    first = (manager.directory / "first-api-key").read_text().strip()
    cli = Commands(manager.url, tmp_path, PENSTOCK_API_KEY=first)
    made = cli.ok("apikey", "create", "dashboard", "--role", "read")
    key = made.out.strip()
    assert key.startswith("apikey:")
    assert "dashboard" in cli.ok("apikey", "list").out
    assert cli.ok("pipelines", "--api-key", key, "--format", "json").json == []
    forbidden = cli("apikey", "list", PENSTOCK_API_KEY=key)
    assert forbidden.code == 6
    assert key not in forbidden.err
    assert cli("pipelines", PENSTOCK_API_KEY="").code == 6
    unknown = cli("pipelines", PENSTOCK_API_KEY="apikey:secret")
    assert unknown.code == 6
    assert "secret" not in unknown.err
    assert cli("pipelines", PENSTOCK_API_KEY="secret\u00e4").code == 2
    cli.ok("apikey", "delete", "dashboard")
    assert cli("apikey", "delete", "dashboard").code == 3


def test_a_long_wait_is_shown_at_a_terminal(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.start(name, "lingers")
    with Terminal(Commands(shared.url, cli.home, TERM="xterm"), "stop", name) as terminal:
        before = terminal.until(f"Pipeline {name} is Stopped.")
        assert terminal.process.wait(10) == 0
    assert f"pipeline {name} stops" in before
