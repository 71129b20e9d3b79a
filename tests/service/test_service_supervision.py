"""Runners are real processes: started, found again, killed, noticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.service.conftest import StartManager
from tests.service.managers import STAND_IN, Manager, wait_for


def pid_of(manager: Manager, name: str) -> int:
    return int(manager.http.get(f"/v0/pipelines/{name}/stats").json()["pid"])


def checkpoints(manager: Manager, name: str) -> list[str]:
    storage = manager.directory / "pipelines" / manager.get(name)["id"] / "storage"
    try:
        return (storage / "checkpoints").read_text().splitlines()
    except FileNotFoundError:
        return []


def test_a_pipeline_runs_and_stops_with_a_checkpoint(manager: Manager) -> None:
    row = manager.start("p")
    assert row["storage_status"] == "InUse"
    assert row["deployment_desired_status"] == "Running"
    assert row["deployment_id"] is not None
    assert manager.post("/p/stop").status_code == 202
    assert manager.get("p")["deployment_desired_status"] in ("Suspended", "Stopped")
    stopped = manager.wait_stopped("p")
    assert stopped["deployment_error"] is None
    assert stopped["deployment_desired_status"] == "Stopped"
    assert stopped["deployment_id"] is None
    assert checkpoints(manager, "p") == [row["deployment_id"]]


def test_stop_by_force_kills_without_a_checkpoint(manager: Manager) -> None:
    manager.start("p")
    pid = pid_of(manager, "p")
    assert manager.post("/p/stop", params={"force": "true"}).status_code == 202
    assert manager.wait_stopped("p")["deployment_error"] is None
    assert not psutil.pid_exists(pid)
    assert checkpoints(manager, "p") == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_death_is_noticed_within_two_seconds(manager: Manager, number: signal.Signals) -> None:
    manager.start("p")
    os.kill(pid_of(manager, "p"), number)
    begin = time.monotonic()
    row = manager.wait("p", lambda row: row["deployment_error"] is not None)
    assert time.monotonic() - begin < 2.0
    error = row["deployment_error"]
    assert error["error_code"] == "RunnerDied"
    assert number.name in error["message"]
    assert "deployed p" in error["message"]
    assert error["details"]["exit_code"] == -number
    stopped = manager.wait_stopped("p")
    assert stopped["deployment_desired_status"] == "Stopped"
    assert stopped["deployment_error"] == error
    refused = manager.post("/p/start", params={"dismiss_error": "false"})
    assert (refused.status_code, refused.json()["error_code"]) == (400, "IllegalPipelineAction")
    assert manager.post("/p/dismiss_error").status_code == 200
    assert manager.post("/p/start", params={"dismiss_error": "false"}).status_code == 202
    manager.wait("p", lambda row: row["deployment_status"] == "Running")


def test_a_fault_tolerant_pipeline_is_started_again(manager: Manager) -> None:
    before = manager.start("p", fault_tolerance={})
    first = pid_of(manager, "p")
    os.kill(first, signal.SIGKILL)
    after = manager.wait(
        "p",
        lambda row: row["deployment_status"] == "Running" and row["deployment_id"] != before["deployment_id"],
    )
    assert after["deployment_error"] is None
    assert pid_of(manager, "p") != first
    events = manager.http.get("/v0/pipelines/p/events", params={"selector": "all"}).json()
    errors = [event["deployment_error"] for event in events if event["deployment_has_error"]]
    assert errors[0]["error_code"] == "RunnerDied"


def test_it_is_not_started_again_for_ever(manager: Manager) -> None:
    row = manager.start("p", fault_tolerance={"model": "at_least_once"})
    for _ in range(3):
        os.kill(pid_of(manager, "p"), signal.SIGKILL)
        seen = row["deployment_id"]
        row = manager.wait(
            "p",
            lambda row, seen=seen: row["deployment_status"] == "Running" and row["deployment_id"] != seen,
        )
    os.kill(pid_of(manager, "p"), signal.SIGKILL)
    assert manager.wait_stopped("p")["deployment_error"]["error_code"] == "RunnerDied"
    time.sleep(0.6)
    assert manager.get("p")["deployment_status"] == "Stopped"


def test_what_the_pipeline_says_is_its_error(manager: Manager) -> None:
    manager.create("p", "fails")
    manager.post("/p/start")
    manager.wait("p", lambda row: row["deployment_error"] is not None)
    assert manager.wait_stopped("p")["deployment_error"] == {
        "message": "it fails",
        "error_code": "EVALUATION",
        "details": {"view": "v"},
    }


def test_a_stop_that_fails_says_why(manager: Manager) -> None:
    manager.start("p", "breaks")
    manager.post("/p/stop")
    error = manager.wait_stopped("p")["deployment_error"]
    assert (error["message"], error["error_code"]) == ("no checkpoint", "DISK")
    assert "deployed p" in "\n".join(error["details"]["log"])


def test_kill_9_of_the_manager(start_manager: StartManager) -> None:
    first = start_manager()
    before = first.start("p")
    pid = pid_of(first, "p")
    wait_for(lambda: len(first.runners()) == 2, 10, lambda: str(first.runners()))
    (spare,) = {process.pid for process in first.runners()} - {pid}
    first.kill()
    second = start_manager()
    row = second.get("p")
    assert (row["deployment_status"], row["deployment_id"]) == ("Running", before["deployment_id"])
    assert pid_of(second, "p") == pid
    # A spare may have been about to get a pipeline when its manager died: another takes its place.
    wait_for(lambda: len(second.runners()) == 2, 10, lambda: str(second.runners()))
    assert spare not in {process.pid for process in second.runners()}
    os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    error = second.wait("p", lambda row: row["deployment_error"] is not None)["deployment_error"]
    assert time.monotonic() - begin < 2.0
    assert "another manager" in error["message"]


def test_a_runner_that_dies_without_a_manager_is_noticed(start_manager: StartManager) -> None:
    first = start_manager(spares=0)
    first.start("p")
    pid = pid_of(first, "p")
    first.kill()
    os.kill(pid, signal.SIGKILL)
    second = start_manager(spares=0)
    row = second.wait("p", lambda row: row["deployment_error"] is not None)
    assert row["deployment_error"]["error_code"] == "RunnerDied"


def test_strays_of_a_killed_manager_are_removed(start_manager: StartManager) -> None:
    first = start_manager()
    wait_for(first.runners, 10, lambda: "no spare")
    first.kill()
    stray = first.directory / "runners" / "stray"
    stray.mkdir()
    (stray / "token").write_text("x")
    command = [sys.executable, STAND_IN, stray]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    wait_for((stray / "runner.json").exists, 10, lambda: "stray did not start")
    start_manager()
    assert process.wait(10) == -signal.SIGKILL
    assert not stray.exists()


def test_ctrl_c_stops_with_checkpoints_and_the_next_goes_on(start_manager: StartManager) -> None:
    first = start_manager()
    before = first.start("running")
    first.start("paused")
    first.post("/paused/pause")
    first.wait("paused", lambda row: row["deployment_status"] == "Paused")
    first.create("stopped")
    assert first.stop() == 0
    assert first.runners() == []
    second = start_manager()
    second.wait("running", lambda row: row["deployment_status"] == "Running")
    second.wait("paused", lambda row: row["deployment_status"] == "Paused")
    assert second.get("stopped")["deployment_status"] == "Stopped"
    assert checkpoints(second, "running") == [before["deployment_id"]]


def test_a_second_ctrl_c_leaves_at_once_and_loses_nothing(start_manager: StartManager) -> None:
    first = start_manager(spares=0)
    before = first.start("p", "lingers")
    first.process.send_signal(signal.SIGINT)
    wait_for(lambda: "checkpoint: p" in first.log.read_text(), 10, first.log.read_text)
    first.process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    assert first.process.wait(10) == 0
    assert time.monotonic() - begin < 2.0
    assert len(first.runners()) >= 1
    second = start_manager(spares=0)
    after = second.wait(
        "p",
        lambda row: row["deployment_status"] == "Running" and row["deployment_id"] != before["deployment_id"],
    )
    assert after["deployment_error"] is None
    assert checkpoints(second, "p") == [before["deployment_id"]]


def test_a_pipeline_that_the_runner_refuses(manager: Manager) -> None:
    manager.create("p", "refused")
    manager.post("/p/start")
    manager.wait("p", lambda row: row["deployment_error"] is not None)
    error = manager.wait_stopped("p")["deployment_error"]
    assert error["error_code"] == "DeploymentRefused"
    assert "not this one" in error["message"]


def test_one_manager_for_a_directory(manager: Manager) -> None:
    with pytest.raises(AssertionError, match="in use by another manager"):
        Manager(manager.directory)


def test_a_start_takes_the_spare(manager: Manager) -> None:
    wait_for(manager.runners, 10, lambda: "no spare")
    spare = manager.runners()[0].pid
    manager.start("p")
    assert pid_of(manager, "p") == spare
    wait_for(lambda: len(manager.runners()) == 2, 30, lambda: "no new spare")


def test_a_spare_that_does_not_fit_is_left(manager: Manager) -> None:
    wait_for(manager.runners, 10, lambda: "no spare")
    spare = manager.runners()[0].pid
    manager.start("p", workers=3, env={"REGION": "eu"})
    pid = pid_of(manager, "p")
    assert pid != spare
    assert psutil.Process(pid).environ()["REGION"] == "eu"


def test_a_dead_spare_is_replaced(manager: Manager) -> None:
    wait_for(manager.runners, 10, lambda: "no spare")
    spare = manager.runners()[0].pid
    os.kill(spare, signal.SIGKILL)
    wait_for(lambda: [p.pid for p in manager.runners() if p.pid != spare], 10, lambda: "no new spare")
    assert manager.create("p")["program_status"] == "Success"


def test_without_spares_programs_are_compiled_all_the_same(start_manager: StartManager) -> None:
    manager = start_manager(spares=0)
    assert manager.runners() == []
    assert manager.create("p")["program_status"] == "Success"


def test_clear_and_delete(manager: Manager) -> None:
    row = manager.start("p")
    manager.post("/p/stop", params={"force": "true"})
    manager.wait_stopped("p")
    storage = manager.directory / "pipelines" / row["id"] / "storage"
    assert storage.exists()
    refused = manager.http.delete("/v0/pipelines/p").json()
    assert refused["error_code"] == "DeleteRestrictedToClearedStorage"
    assert manager.post("/p/clear").status_code == 202
    manager.wait("p", lambda row: row["storage_status"] == "Cleared")
    assert not storage.exists()
    again = manager.post("/p/clear")
    assert (again.status_code, again.json()["error_code"]) == (400, "InvalidStorageStatusTransition")
    assert manager.http.delete("/v0/pipelines/p").status_code == 200
    assert not Path(storage.parent / "logs").exists()
