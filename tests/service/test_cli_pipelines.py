"""The life of a pipeline by commands: create, start, pause, resume, stop, clear, delete."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.service.refusals import CommandError
from penstock.cli.service.running import activated
from tests.service.commands import Commands
from tests.service.managers import Manager
from tests.service.test_service_pipelines import new_name


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.sql"
    path.write_text("good")
    return path


def test_a_life(cli: Commands, program: Path, tmp_path: Path) -> None:
    name = new_name()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"workers": 3}))
    made = cli.ok("create", name, program, "--config", config, "--description", "for a test")
    assert f"penstock start {name}" in made.out
    assert cli.ok("config", "get", name).json["workers"] == 3
    assert cli.ok("start", name).out == f"Pipeline {name} is Running.\n"
    assert cli.ok("pause", name, "--format", "json").json == {
        "name": name,
        "status": "Paused",
        "desired_status": "Paused",
    }
    assert cli.ok("resume", name).out == f"Pipeline {name} is Running.\n"
    shown = cli.ok("status", name).out
    assert "for a test" in shown
    assert "Running, since" in shown
    listed = cli.ok("pipelines").out
    assert name in listed
    assert "│ Running" in listed
    found = {row["name"]: row for row in cli.ok("pipelines", "--format", "json").json}
    assert found[name]["deployment_status"] == "Running"
    assert cli.ok("stop", name).out == f"Pipeline {name} is Stopped.\n"
    refused = cli("delete", name)
    assert refused.code == 4
    assert f"penstock clear {name}" in refused.err
    assert cli.ok("clear", name).out == f"The storage of {name} is Cleared.\n"
    assert cli.ok("delete", name, "--format", "json").json == {"name": name, "deleted": True}
    assert cli("status", name).code == 3


def test_status_shows_replicas(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.create(name, "good fails-1", replicas=2, fault_tolerance={})
    shared.post(f"/{name}/start")

    def seen(row: dict[str, Any]) -> bool:
        found = (row["deployment_resources_status_details"] or {}).get("replicas", [])
        return [one.get("status") for one in found] == ["Running", "Failed"]

    shared.wait(name, seen)
    shown = cli.ok("status", name).out
    assert "gets the requests, leads" in shown
    assert "Failed, it fails" in shown
    shared.post(f"/{name}/stop", params={"force": "true"})


def test_start_paused_stop_by_force_and_restart(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    assert cli.ok("start", name, "--paused").out == f"Pipeline {name} is Paused.\n"
    assert cli.ok("restart", name, "--force", "--format", "json").json["status"] == "Running"
    assert cli.ok("stop", name, "--force").out == f"Pipeline {name} is Stopped.\n"


def test_no_wait_and_timeout(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.start(name, "lingers")
    late = cli("stop", name, "--timeout", "0.3")
    assert late.code == 7
    assert "Not within 0.3 seconds" in late.err
    assert cli.ok("stop", name, "--no-wait", "--format", "json").json["status"] != "Stopped"
    assert shared.wait_stopped(name)["deployment_error"] is None


def test_ctrl_c_while_waiting(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.start(name, "lingers")
    with cli.begun("stop", name) as waiting:
        shared.wait(name, lambda row: row["deployment_desired_status"] == "Suspended")
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(10) == 130
        assert "Traceback" not in waiting.stderr.read()
    shared.wait_stopped(name)


def test_a_pipeline_that_fails_says_why(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.create(name, "fails")
    failed = cli("start", name)
    assert failed.code == 1
    assert failed.out == ""
    assert "error[EVALUATION]: it fails" in failed.err
    assert f"penstock logs {name}" in failed.err
    assert "it fails" in cli.ok("status", name).out
    told = cli("start", name, "--format", "json")
    assert (told.code, told.out) == (1, "")
    assert json.loads(told.err)["error_code"] == "EVALUATION"
    cli.ok("dismiss-error", name)
    assert "it fails" not in cli.ok("status", name).out


def test_a_pipeline_that_cannot_stop_in_order(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.start(name, "breaks")
    failed = cli("stop", name)
    assert failed.code == 1
    assert "no checkpoint" in failed.err


def test_errors_in_a_program_are_shown_with_their_place(cli: Commands, tmp_path: Path) -> None:
    name = new_name()
    program = tmp_path / "wrong.sql"
    program.write_text("one\n  bad two\n")
    place = "{}:2:3\n  |\n2 |   bad two\n  |   ^\n"
    made = cli("create", name, program)
    assert made.code == 1
    assert "error[PROGRAM_ERROR]: bad program" in made.err
    assert place.format(program) in made.err
    assert f"penstock program set {name} FILE" in made.err
    started = cli("start", name)
    assert started.code == 1
    assert place.format(f"program of {name}") in started.err


def test_approval(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.create(name, "differs")
    waits = cli("start", name, "--bootstrap", "await_approval")
    assert waits.code == 4
    assert f"penstock approve {name}" in waits.err
    assert "by_day" in cli.ok("status", name).out
    assert cli.ok("approve", name).out == f"Pipeline {name} is Running.\n"
    assert cli("approve", name).code == 4
    cli.ok("activate", name)
    assert cli("start", name, "--bootstrap", "reject").code == 4


def test_wrong_usage(cli: Commands, shared: Manager, tmp_path: Path, program: Path) -> None:
    name = new_name()
    shared.create(name)
    assert cli("start", name, "--paused", "--standby").code == 2
    assert cli("start", name, "--standby").code == 4
    assert cli("create", "no name", program).code == 2
    wrong = tmp_path / "config.json"
    wrong.write_text('{"workers": "many"}')
    refused = cli("create", new_name(), program, "--config", wrong)
    assert refused.code == 2
    assert "error[InvalidRuntimeConfig]" in refused.err
    assert cli("create", name, program).code == 4


def test_no_such_pipeline(cli: Commands) -> None:
    for command in ("start", "stop", "resume"):
        found = cli(command, "nobody", "--format", "json")
        assert found.code == 3
        assert json.loads(found.err)["error_code"] == "UnknownPipelineName"


def test_a_directory_is_a_storage_directory(cli: Commands, shared: Manager, tmp_path: Path) -> None:
    assert cli("resume", tmp_path).code == 2
    local = cli("resume", tmp_path, "--skip-transaction", "3")
    assert local.code == 1
    assert str(tmp_path) in local.err
    assert cli("resume", tmp_path / "none", "--skip-transaction", "3").code == 2
    name = new_name()
    shared.start(name)
    cli.ok("resume", name, "--skip-transaction", "3")
    assert cli.ok("logs", name).out.endswith("skipped 3\n")
    assert cli("checkpoint", "list", tmp_path / "none").code == 2


def test_the_shell_completes_names(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    words = {"COMP_WORDS": f"penstock start {name[:4]}", "COMP_CWORD": "2"}
    found = cli(_PENSTOCK_COMPLETE="complete_bash", **words)
    assert name in found.out.split()
    assert found.err == ""


def test_an_activation_that_failed_is_told_and_not_waited_for() -> None:
    def row(status: str, **details: str) -> dict[str, object]:
        return {"deployment_status": status, "deployment_runtime_status_details": details or None}

    assert not activated(row("Standby"))
    assert activated(row("Initializing"))
    assert activated(row("Running", activation_error="of before"))
    with pytest.raises(CommandError, match="stands by as before: no answer"):
        activated(row("Standby", activation_error="no answer"))
