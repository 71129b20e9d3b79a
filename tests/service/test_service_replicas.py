"""A pipeline with `replicas` runs as several processes: one gets the requests, any of them may die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.errors import ConnectorError
from penstock.service.runner.confinement import refuse_group
from tests.service.conftest import StartManager
from tests.service.managers import Manager, wait_for
from tests.service.real import Served, killed, row, until

EXACTLY_ONCE = {"model": "exactly_once"}


def replicas_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    return list((found["deployment_resources_status_details"] or {}).get("replicas", []))


def start(manager: Manager, program: str = "good", replicas: int = 2, **config: Any) -> dict[str, Any]:
    """A pipeline whose replicas all run, those that are not meant to fail."""
    manager.create("p", program, replicas=replicas, fault_tolerance=EXACTLY_ONCE, **config)
    assert manager.post("/p/start").status_code == 202
    return all_are(manager, "Running")


def all_are(manager: Manager, status: str) -> dict[str, Any]:
    def are(found: dict[str, Any]) -> bool:
        seen = replicas_of(found)
        return bool(seen) and all(one.get("status") in (status, "Failed") for one in seen)

    return manager.wait("p", are)


def pids(manager: Manager) -> list[int]:
    return [one["pid"] for one in replicas_of(manager.get("p"))]


def asked(manager: Manager) -> int:
    """The process that answers requests."""
    return int(manager.http.get("/v0/pipelines/p/stats").json()["pid"])


def directory(manager: Manager) -> Path:
    return Path(manager.directory / "pipelines" / manager.get("p")["id"])


def checkpoints(manager: Manager, replica: int) -> int:
    path = directory(manager) / (f"storage-{replica}" if replica else "storage") / "checkpoints"
    return len(path.read_text().splitlines()) if path.exists() else 0


def events(manager: Manager) -> list[dict[str, Any]]:
    found = manager.http.get("/v0/pipelines/p/events", params={"selector": "all"})
    return list(reversed(found.json()))


def wait_replica(manager: Manager, replica: int, until: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    found = manager.wait(
        "p", lambda row: len(replicas_of(row)) > replica and until(replicas_of(row)[replica])
    )
    return replicas_of(found)[replica]


# -- configuration --------------------------------------------------------------------------------


def test_without_replicas_the_configuration_is_that_of_the_reference(shared: Manager) -> None:
    config = shared.create("alone", replicas=1)["runtime_config"]
    assert "replicas" not in config
    assert "group" not in config
    found = shared.create("two", replicas=2, fault_tolerance=EXACTLY_ONCE)
    assert found["runtime_config"]["replicas"] == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"replicas": 0}, "greater than or equal to 1"),
        ({"replicas": 17}, "less than or equal to 16"),
        ({"replicas": 2}, "set fault_tolerance.model to exactly_once, or replicas to 1"),
        ({"group": {"log_uri": "sqlite:///x"}}, "so say where, with uri"),
        ({"group": {"uri": "ftp://there"}}, "no place for shards"),
        ({"group": {"lease_seconds": 0.5}}, "at least 1"),
        ({"group": {"place": "x"}}, "say where, with uri"),
        (
            {"group": {}, "storage": {"backend": {"name": "file", "config": {"sync": {"bucket": "b"}}}}},
            "remove storage.backend.config.sync, or replicas and group",
        ),
    ],
)
def test_what_is_refused(shared: Manager, config: dict[str, Any], said: str) -> None:
    body = {"name": "refused", "program_code": "good", "runtime_config": config}
    refused = shared.post("", json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (400, "InvalidRuntimeConfig")
    assert said in refused.json()["message"]


def test_secrets_of_a_group_are_for_the_runner(shared: Manager) -> None:
    group = {
        "uri": "s3://bucket/shop",
        "access_key": "key",
        "secret_key": "${secret:there_is_none}",
        "log_uri": "postgresql://u:${secret:nor_this}@host/db",
    }
    assert shared.create("elsewhere", group=group)["runtime_config"]["group"] == group


def test_a_group_is_confined_like_connectors(tmp_path: Path) -> None:
    roots = [str(tmp_path)]
    refuse_group({"uri": str(tmp_path / "shared"), "log_uri": f"sqlite:///{tmp_path}/log"}, roots)
    refuse_group({"uri": "s3://bucket/shop"}, roots)
    for group in ({"uri": "/etc"}, {"uri": "file:///etc"}, {"uri": "s3://b", "log_uri": "sqlite:////etc/x"}):
        with pytest.raises(ConnectorError, match="the setting group: /etc"):
            refuse_group(group, roots)


def test_state_belongs_to_a_group_or_to_none(manager: Manager) -> None:
    start(manager)
    manager.post("/p/stop")
    manager.wait_stopped("p")

    def edit(**config: Any) -> int:
        body = {"runtime_config": {"fault_tolerance": EXACTLY_ONCE, **config}}
        return int(manager.http.patch("/v0/pipelines/p", json=body).status_code)

    assert edit(replicas=3) == 200
    assert edit(replicas=2, group={"lease_seconds": 5}) == 200
    assert edit(group={}) == 200
    assert edit() == 400
    assert edit(replicas=2, group={"uri": "/elsewhere"}) == 400


# -- running --------------------------------------------------------------------------------------


def test_each_replica_has_its_process_and_its_storage(manager: Manager) -> None:
    found = start(manager, replicas=3)
    seen = replicas_of(found)
    assert [one["replica"] for one in seen] == [0, 1, 2]
    assert len({one["pid"] for one in seen}) == 3
    assert [one["requests"] for one in seen] == [True, False, False]
    assert [one["leads"] for one in seen] == [True, False, False]
    assert {one["lag_seconds"] for one in seen} == {0}
    assert asked(manager) == seen[0]["pid"] == found["deployment_resources_status_details"]["pid"]
    names = {path.name for path in directory(manager).iterdir()}
    assert names >= {"storage", "storage-1", "storage-2", "group"}


def test_a_member_of_a_group_elsewhere(manager: Manager, tmp_path: Path) -> None:
    manager.start("p", group={"uri": str(tmp_path / "shared")})
    assert (tmp_path / "shared").is_dir()
    assert replicas_of(manager.get("p")) == []
    assert not (directory(manager) / "group").exists()


def test_another_takes_over_when_the_one_that_is_asked_dies(manager: Manager) -> None:
    before = start(manager)
    first, second = pids(manager)
    os.kill(first, signal.SIGKILL)
    begin = time.monotonic()
    wait_for(lambda: manager.http.get("/v0/pipelines/p/stats").status_code == 200, 10, manager.log.read_text)
    manager.wait("p", lambda row: row["deployment_resources_status_details"]["pid"] == second)
    assert time.monotonic() - begin < 5
    assert asked(manager) == second
    again = wait_replica(
        manager, 0, lambda one: one.get("pid") not in (None, first) and one["status"] == "Running"
    )
    assert not again["requests"]
    assert "SIGKILL" in again["started_again_after"]
    after = manager.get("p")
    assert after["deployment_id"] == before["deployment_id"]
    assert after["deployment_error"] is None
    assert replicas_of(after)[1]["requests"]
    seen = events(manager)
    assert {one["deployment_resources_status"] for one in seen} <= {"Stopped", "Provisioning", "Provisioned"}
    said = [(one["deployment_resources_status_details"] or {}).get("took_over", "") for one in seen]
    assert any("replica 1 took over from replica 0, which was killed by SIGKILL" in text for text in said)
    log = manager.http.get("/v0/pipelines/p/logs", params={"follow": "false"}).text
    assert f"stand-in {second} is up" in log


def test_another_that_dies_is_started_again(manager: Manager) -> None:
    start(manager)
    first, second = pids(manager)
    os.kill(second, signal.SIGKILL)
    again = wait_replica(
        manager, 1, lambda one: one.get("pid") not in (None, second) and one["status"] == "Running"
    )
    assert len(again["restarts"]) == 1
    assert asked(manager) == first
    assert manager.get("p")["deployment_status"] == "Running"


def test_all_die_at_once(manager: Manager) -> None:
    before = start(manager)
    for pid in pids(manager):
        os.kill(pid, signal.SIGKILL)
    manager.wait("p", lambda row: row["deployment_id"] not in (None, before["deployment_id"]))
    after = all_are(manager, "Running")
    assert after["deployment_error"] is None


def test_one_that_dies_at_once_is_not_started_for_ever(manager: Manager) -> None:
    manager.create("p", "good dies-1", replicas=2, fault_tolerance=EXACTLY_ONCE)
    manager.post("/p/start")
    failed = wait_replica(manager, 1, lambda one: one.get("status") == "Failed")
    assert len(failed["restarts"]) == 3
    assert failed["error"]["error_code"] == "RunnerDied"
    time.sleep(0.6)
    row = manager.get("p")
    assert row["deployment_status"] == "Running"
    assert replicas_of(row)[1]["status"] == "Failed"
    assert "pid" not in replicas_of(row)[1]


def test_an_error_of_its_own_ends_a_replica_and_no_other(manager: Manager) -> None:
    found = start(manager, "good fails-1")
    failed = replicas_of(found)[1]
    assert (failed["status"], failed["error"]["message"]) == ("Failed", "it fails")
    assert (found["deployment_status"], found["deployment_error"]) == ("Running", None)


def test_an_error_of_the_one_that_is_asked(manager: Manager) -> None:
    found = start(manager, "good fails-0")
    failed, other = replicas_of(found)
    assert (failed["status"], failed["error"]["message"]) == ("Failed", "it fails")
    assert (other["status"], other["requests"]) == ("Running", True)
    manager.wait("p", lambda row: row["deployment_status"] == "Running")
    assert asked(manager) == other["pid"]


def test_an_error_of_all_is_the_error_of_the_pipeline(manager: Manager) -> None:
    manager.create("p", "good fails", replicas=2, fault_tolerance=EXACTLY_ONCE)
    manager.post("/p/start")
    manager.wait("p", lambda row: row["deployment_error"] is not None)
    assert manager.wait_stopped("p")["deployment_error"]["message"] == "it fails"
    assert [process for process in manager.runners() if _has_pipeline(process)] == []


def _has_pipeline(process: psutil.Process) -> bool:
    path = Path(process.cmdline()[-1]) / "runner.log"
    return path.exists() and "deployed p" in path.read_text()


def test_one_that_hangs_is_left(manager: Manager) -> None:
    start(manager)
    first, second = pids(manager)
    os.kill(first, signal.SIGSTOP)
    try:
        manager.wait("p", lambda row: row["deployment_resources_status_details"]["pid"] == second, 40)
        assert asked(manager) == second
        wait_replica(manager, 0, lambda one: one["status"] == "Unavailable")
    finally:
        os.kill(first, signal.SIGCONT)
    back = wait_replica(manager, 0, lambda one: one["status"] == "Running")
    assert (back["pid"], back["requests"]) == (first, False)


def test_all_are_paused_and_resumed(manager: Manager) -> None:
    start(manager)
    manager.post("/p/pause")
    all_are(manager, "Paused")
    second = pids(manager)[1]
    os.kill(second, signal.SIGKILL)
    again = wait_replica(
        manager, 1, lambda one: one.get("pid") not in (None, second) and one["status"] == "Paused"
    )
    os.kill(pids(manager)[0], signal.SIGKILL)
    manager.wait("p", lambda row: row["deployment_resources_status_details"]["pid"] == again["pid"])
    all_are(manager, "Paused")
    assert manager.get("p")["deployment_status"] == "Paused"
    manager.post("/p/resume")
    all_are(manager, "Running")


def test_what_all_fail_with_can_be_skipped(manager: Manager) -> None:
    manager.create("p", "good stuck-0 stuck-1", replicas=2, fault_tolerance=EXACTLY_ONCE)
    manager.post("/p/start")
    all_are(manager, "Paused")
    assert manager.post("/p/resume", params={"skip_transaction": 8}).status_code == 400
    for wrong in ("", "x", "-7", "7.0", "9" * 5000):
        refused = manager.post("/p/resume", params={"skip_transaction": wrong})
        assert (refused.status_code, refused.json()["error_code"]) == (400, "InvalidRequestParameter")
    assert manager.post("/p/resume", params={"skip_transaction": 7}).status_code == 202
    wait_replica(manager, 0, lambda one: one["status"] == "Running")  # the other one is told by its group


def test_one_that_cannot_go_on_is_left_for_one_that_can(manager: Manager) -> None:
    manager.create("p", "good stuck-0", replicas=2, fault_tolerance=EXACTLY_ONCE)
    manager.post("/p/start")
    wait_replica(manager, 0, lambda one: one.get("status") == "Paused")
    other = wait_replica(manager, 1, lambda one: one.get("status") == "Running")
    found = manager.wait(
        "p", lambda row: row["deployment_resources_status_details"]["pid"] == other["pid"], 40
    )
    assert "cannot run a transaction" in found["deployment_resources_status_details"]["took_over"]
    manager.wait("p", lambda row: row["deployment_status"] == "Running")
    assert wait_replica(manager, 0, lambda one: one["status"] == "Paused")["requests"] is False


def test_a_connector_is_paused_in_all(manager: Manager) -> None:
    start(manager, "shop")
    path = "/v0/pipelines/p/tables/orders/connectors/orders_file"
    assert manager.http.post(f"{path}/pause").status_code == 200
    first, second = pids(manager)
    os.kill(first, signal.SIGKILL)
    manager.wait("p", lambda row: row["deployment_resources_status_details"]["pid"] == second)
    assert manager.http.get(f"{path}/stats").json()["paused"]


# -- stopping -------------------------------------------------------------------------------------


def test_all_stop_with_a_checkpoint(manager: Manager) -> None:
    start(manager, "lingers")
    before = pids(manager)
    manager.post("/p/stop")
    assert manager.wait_stopped("p")["deployment_error"] is None
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert [checkpoints(manager, replica) for replica in (0, 1)] == [1, 1]


def test_stop_by_force_kills_all(manager: Manager) -> None:
    start(manager)
    before = pids(manager)
    manager.post("/p/stop", params={"force": "true"})
    manager.wait_stopped("p")
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert [checkpoints(manager, replica) for replica in (0, 1)] == [0, 0]


def test_ctrl_c_stops_all_and_the_next_manager_starts_them(start_manager: StartManager) -> None:
    first = start_manager()
    start(first)
    assert first.stop() == 0
    assert first.runners() == []
    second = start_manager()
    all_are(second, "Running")
    assert [checkpoints(second, replica) for replica in (0, 1)] == [1, 1]


def test_one_that_hangs_at_ctrl_c_is_started_again(start_manager: StartManager) -> None:
    first = start_manager(spares=0)
    start(first)
    os.kill(pids(first)[0], signal.SIGSTOP)
    assert first.stop() == 0
    second = start_manager(spares=0)
    assert all_are(second, "Running")["deployment_error"] is None


def test_a_second_ctrl_c_waits_for_none_and_loses_none(start_manager: StartManager) -> None:
    first = start_manager(spares=0)
    before = start(first, "lingers")
    first.process.send_signal(signal.SIGINT)
    wait_for(lambda: "checkpoint: p" in first.log.read_text(), 10, first.log.read_text)
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(10) == 0
    second = start_manager(spares=0)
    second.wait("p", lambda row: row["deployment_id"] not in (None, before["deployment_id"]))
    assert all_are(second, "Running")["deployment_error"] is None
    assert [checkpoints(second, replica) for replica in (0, 1)] == [1, 1]


def test_the_next_manager_finds_them_all(start_manager: StartManager) -> None:
    first = start_manager(spares=0)
    start(first)
    before = pids(first)
    first.kill()
    second = start_manager(spares=0)
    all_are(second, "Running")
    assert pids(second) == before
    os.kill(before[0], signal.SIGKILL)
    second.wait("p", lambda row: row["deployment_resources_status_details"]["pid"] == before[1])


def test_clearing_deletes_what_all_have(manager: Manager) -> None:
    start(manager)
    manager.post("/p/stop")
    manager.wait_stopped("p")
    manager.post("/p/clear")
    manager.wait("p", lambda row: row["storage_status"] == "Cleared")
    assert {path.name for path in directory(manager).iterdir()} == {"logs"}


def test_fewer_replicas_leave_nothing_behind(manager: Manager) -> None:
    start(manager, replicas=3)
    manager.post("/p/stop")
    manager.wait_stopped("p")
    body = {"runtime_config": {"fault_tolerance": EXACTLY_ONCE, "replicas": 2}}
    assert manager.http.patch("/v0/pipelines/p", json=body).status_code == 200
    manager.post("/p/start")
    assert len(replicas_of(all_are(manager, "Running"))) == 2
    names = {path.name for path in directory(manager).iterdir()}
    assert names >= {"storage", "storage-1", "group"}
    assert "storage-2" not in names


# -- real runners ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_real_replicas(tmp_path: Path) -> None:
    """kill -9 of the one that is asked: no row is lost, the pipeline never stops, and it is two again."""
    service = Served(tmp_path / "service", "--spares", "0")
    try:
        pipeline = service.pipeline("shop").create(replicas=2).start()

        def running() -> list[dict[str, Any]] | None:
            seen = replicas_of(pipeline.get())
            return seen if len(seen) == 2 and all(one.get("status") == "Running" for one in seen) else None

        def push(first: int, count: int) -> None:
            def taken() -> bool:
                answer = pipeline.push([row(number) for number in range(first, first + count)])
                if answer.status_code != 200:
                    return False
                params = {"token": answer.json()["token"]}
                path = f"{pipeline.path}/completion_status"
                status = 202
                while status == 202:
                    status = service.http.get(path, params=params).status_code
                return status == 200

            until(taken)

        def total() -> list[dict[str, Any]]:
            return pipeline.query("SELECT count(*) AS c, sum(n) AS s FROM t")

        def expected(count: int) -> list[dict[str, Any]]:
            return [{"c": count, "s": sum(row(number)["n"] for number in range(count))}]

        before = until(running, 240)
        assert sum(one["leads"] for one in before) == 1
        deployment = pipeline.get()["deployment_id"]
        push(0, 50)
        assert total() == expected(50)
        killed([psutil.Process(pipeline.pid)])
        push(50, 50)
        assert total() == expected(100)
        assert pipeline.pid == before[1]["pid"]
        after = until(running, 240)
        assert after[0]["pid"] != before[0]["pid"]
        assert pipeline.get()["deployment_id"] == deployment
        killed([psutil.Process(pipeline.pid)])
        push(100, 50)
        assert total() == expected(150)
        assert pipeline.pid == after[0]["pid"]
        seen = service.http.get(f"{pipeline.path}/events").json()
        assert "Stopping" not in {one["deployment_resources_status"] for one in seen}
        pipeline.stop()
        pipeline.start()
        assert total() == expected(150)
        pipeline.stop(force=True)
    finally:
        service.end()
