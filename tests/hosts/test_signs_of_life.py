"""Who is there, who is lost and who came back, on both sides; runs of the coordinator, one after another."""

from __future__ import annotations

import json
import signal
import socket
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from penstock.errors import HostError, HostLostError
from penstock.hosts.awake import AwakeClock
from penstock.hosts.coordinator import Coordinator
from penstock.hosts.messages import Admission
from penstock.hosts.process import Options
from penstock.hosts.worker import _processes_of
from penstock.trace.host import FILE_ENVIRONMENT
from penstock.trace.host import Host as Here
from tests.hosts.running import FIRST, MASTER, PATIENCE, Sleeper, coordinating, hosting, wait_until


def options(root: Path, index: int) -> Options:
    return Options(index, str(root / "shop"), root / f"host-{index}", address=f"127.0.0.{index + 2}")


def waited(coordinator: Coordinator) -> list[str]:
    said: list[str] = []
    deadline = time.monotonic() + PATIENCE
    coordinator.wait(lambda: time.monotonic() > deadline, said.append)
    return said


# -- coming together ------------------------------------------------------------------------------


def test_hosts_join_and_do_what_they_are_asked(tmp_path: Path) -> None:
    with (
        coordinating(tmp_path / "shop") as coordinator,
        hosting(options(tmp_path, 0)) as first,
        hosting(options(tmp_path, 1)) as second,
    ):
        waited(coordinator)
        joined = [host["in"] for host in coordinator.stats()["hosts"]]
        assert joined == [True, True], (first.said, second.said)
        assert coordinator.addresses() == ["127.0.0.2", "127.0.0.3"]
        assert [coordinator.agent(index).url for index in (0, 1)] == coordinator.urls()
        assert coordinator.lost() == {}
        coordinator.refuse_lost()
        coordinator.agent(0).sweep([("view-a", FIRST)])
        wait_until(lambda: coordinator.agent(1).status()["worker_runs"])
        assert coordinator.agent(1).status()["worker_pid"] == second.pid
        assert first.has_said("as host 0 of 2")


def test_waiting_names_who_is_missing_and_how_to_start_it(tmp_path: Path) -> None:
    said: list[str] = []
    with coordinating(tmp_path / "shop") as coordinator, hosting(options(tmp_path, 0)):
        wait_until(lambda: coordinator.stats()["hosts"][0]["in"])
        waiting = threading.Thread(target=coordinator.wait, args=(lambda: False, said.append))
        waiting.start()
        wait_until(lambda: said and "host 0" not in said[-1])
        command = f"penstock host --index 1 --coordinator {tmp_path / 'shop'} --storage DIR"
        assert said[-1] == f"Waiting for host 1 of 2. Start it with: {command}"
        with pytest.raises(HostLostError, match="host 1 of 2 has not checked in"):
            coordinator.agent(1)
        with hosting(options(tmp_path, 1)):
            waiting.join(30)
            assert not waiting.is_alive()


def test_waiting_can_be_given_up(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop") as coordinator:
        coordinator.wait(stopped=lambda: True)


def test_a_host_waits_for_its_coordinator_and_can_be_stopped(tmp_path: Path) -> None:
    with hosting(options(tmp_path, 0)) as host:
        wait_until(lambda: host.has_said("coordinator.json is not there: the pipeline does not run"))
        with coordinating(tmp_path / "shop", count=1) as coordinator:
            waited(coordinator)


def test_a_host_finds_its_coordinator_by_url(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop", count=1) as coordinator:
        url = coordinator.stats()["url"]
        secret = tmp_path / "shop" / "hosts.secret"
        with hosting(Options(0, url, tmp_path / "host", secret_file=secret)):
            waited(coordinator)
            coordinator.agent(0).status()


def test_secrets_are_for_this_user_alone(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop", count=1) as coordinator, hosting(options(tmp_path, 0)) as host:
        waited(coordinator)
        wait_until(lambda: host.pid)
        secrets = ["shop/coordinator.json", "shop/hosts.secret", "host-0/worker.properties"]
        for name in secrets:
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        said = json.dumps(coordinator.stats()) + "".join(host.said)
        for secret in (
            coordinator.token,
            coordinator.spark_secret,
            (tmp_path / secrets[1]).read_text().strip(),
        ):
            assert secret not in said


# -- losing each other ----------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty")
def test_a_lost_host_is_named_and_taken_back(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop") as coordinator, hosting(options(tmp_path, 0)):
        with hosting(options(tmp_path, 1)):
            waited(coordinator)
        wait_until(coordinator.lost)
        text = coordinator.lost()[1]
        assert text.startswith("host 1 at 127.0.0.3 has given no sign of life since 2")
        with pytest.raises(HostLostError, match=r"host 1 at 127\.0\.0\.3") as raised:
            coordinator.refuse_lost()
        assert raised.value.host == 1
        with pytest.raises(HostLostError, match=r"host 1 of 2 at http://127\.0\.0\.3"):
            coordinator.agent(1).status()
        with hosting(options(tmp_path, 1)):
            wait_until(lambda: not coordinator.lost())
            waited(coordinator)
            coordinator.agent(1).status()


@pytest.mark.usefixtures("hasty")
def test_a_lost_host_is_not_replaced_by_one_with_a_new_disk(tmp_path: Path) -> None:
    """It has not the batches of the one before, and a checkpoint that lists both is of no use."""
    with coordinating(tmp_path / "shop", count=1) as coordinator:
        with hosting(options(tmp_path, 0)):
            waited(coordinator)
        wait_until(coordinator.lost)
        with hosting(Options(0, str(tmp_path / "shop"), tmp_path / "new", address="127.0.0.9")) as new:
            assert "it has not the batches of that one" in new.refusal()
        assert coordinator.lost()


def test_time_in_which_a_process_was_stopped_does_not_count() -> None:
    times = iter([0.0, 1.0, 2.0, 100.0, 101.0])
    clock = AwakeClock(lambda: next(times))
    assert [clock.now() for _ in range(4)] == [1.0, 2.0, 2.0, 3.0]


@pytest.mark.usefixtures("hasty")
def test_a_coordinator_that_is_gone_without_a_word(tmp_path: Path) -> None:
    """Its hosts end their Spark workers, forget its token, and join the next run, at another port."""
    with hosting(options(tmp_path, 0)) as host:
        with coordinating(tmp_path / "shop", count=1) as first:
            waited(first)
            wait_until(lambda: host.pid)
            worker, agent = host.pid, first.agent(0)
            old = type(agent)(agent.url, first.token, agent.membership)
            assert first._server is not None
            first._server.close()
            first._closing.set()  # a killed one tells nobody
        wait_until(lambda: host.has_said("Lost the coordinator"))
        wait_until(lambda: host.pid is None)
        assert worker is not None
        assert not psutil.pid_exists(worker)
        with pytest.raises(HostLostError, match="has not checked in"):
            old.status()
        with coordinating(tmp_path / "shop", count=1) as second:
            waited(second)
            assert second.incarnation != first.incarnation
            second.agent(0).status()
            with pytest.raises(HostError, match=f"not that of incarnation {second.incarnation}"):
                old.status()
        old.close()


@pytest.mark.usefixtures("hasty")
def test_a_coordinator_that_accepts_and_never_answers(tmp_path: Path) -> None:
    """As one that was stopped, or whose answers get lost on the way."""
    with hosting(options(tmp_path, 0)) as host, coordinating(tmp_path / "shop", count=1) as coordinator:
        waited(coordinator)
        wait_until(lambda: host.pid)
        server = coordinator._server
        assert server is not None
        server.close()
        with socket.create_server(("127.0.0.1", server.port)):
            wait_until(lambda: host.has_said("Lost the coordinator"))
            wait_until(lambda: host.pid is None)
        assert host.has_said("(no answer in time)")


def test_a_coordinator_that_says_that_its_run_is_over(tmp_path: Path) -> None:
    with hosting(options(tmp_path, 0)) as host:
        with coordinating(tmp_path / "shop", count=1) as first:
            waited(first)
            wait_until(lambda: host.pid)
        assert not (tmp_path / "shop" / "coordinator.json").exists()
        wait_until(lambda: host.has_said("is over; waiting for the next one"))
        wait_until(lambda: host.pid is None)
        with coordinating(tmp_path / "shop", count=1) as second:
            waited(second)
            wait_until(lambda: host.pid)


def test_another_incarnation_is_believed_only_when_the_one_before_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        coordinating(tmp_path / "shop", count=1) as coordinator,
        hosting(options(tmp_path, 0)) as host,
    ):
        waited(coordinator)
        wait_until(lambda: host.pid)
        before, worker = coordinator.incarnation, host.pid
        coordinator.incarnation = "impostor"
        wait_until(lambda: host.has_said(f"incarnation {before} may still live"))
        assert host.pid == worker
        coordinator.incarnation = before
        coordinator.agent(0).status()


@pytest.mark.usefixtures("hasty")
def test_an_incarnation_that_stays_is_believed(tmp_path: Path) -> None:
    """As when a coordinator comes back at the same port at once."""
    with coordinating(tmp_path / "shop", count=1) as coordinator, hosting(options(tmp_path, 0)) as host:
        waited(coordinator)
        coordinator.incarnation = "second"
        wait_until(lambda: host.has_said("is gone"))
        wait_until(lambda: host.has_said("Joined"))


# -- the worker -----------------------------------------------------------------------------------


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop", count=1) as coordinator, hosting(options(tmp_path, 0)) as host:
        waited(coordinator)
        wait_until(lambda: host.pid)
        worker = host.pid
        assert worker is not None
        psutil.Process(worker).send_signal(signal.SIGKILL)
        wait_until(lambda: host.has_said("The Spark worker was killed by signal 9; it is started again"))
        wait_until(lambda: host.pid not in (None, worker))


class Failing(Sleeper):
    """Ends as soon as it is started."""

    def _command(self, admission: Admission, properties: Path) -> list[str]:
        return ["sh", "-c", "echo no memory; exit 3"]


def test_a_worker_that_dies_again_and_again_ends_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.hosts.process.SIGN_SECONDS", 0.1)
    with (
        coordinating(tmp_path / "shop", count=1),
        hosting(options(tmp_path, 0), Failing) as host,
    ):
        refusal = host.refusal()
    assert "ended with exit code 3, the 4th time in 10 minutes" in refusal
    assert "no memory" in refusal


def test_what_is_left_of_an_earlier_worker_is_ended(tmp_path: Path) -> None:
    """Also what went into a process group of its own, as Python workers do."""

    class Scattering(Sleeper):
        def _command(self, admission: Admission, properties: Path) -> list[str]:
            return ["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & sleep 1000"]

    directory = tmp_path / "host"
    directory.mkdir()
    admission = Admission("p", "i", 1, "t", 1, MASTER, "s")
    left = Scattering(directory, 0, "127.0.0.1", "1g")
    left.start(admission)
    wait_until(lambda: len(list(_processes_of(directory))) == 4)
    before = {process.pid for process in _processes_of(directory)}
    worker = Sleeper(directory, 0, "127.0.0.1", "1g")
    worker.start(admission)
    assert worker.pid is not None
    wait_until(lambda: {process.pid for process in _processes_of(directory)} == {worker.pid})
    assert worker.pid not in before
    worker.stop()
    assert list(_processes_of(directory)) == []
    left.stop()


# -- beside executors of others -------------------------------------------------------------------


def test_executors_go_on_while_the_host_beside_them_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says who it is goes with the run that it belongs to; without it the host is waited for."""
    file = tmp_path / "beside.json"
    beside = replace(options(tmp_path, 0), beside=file)
    monkeypatch.setenv(FILE_ENVIRONMENT, str(file))
    with pytest.raises(HostLostError, match=rf"{file} is missing.*'penstock host --beside {file}'"):
        Here.here()
    with coordinating(tmp_path / "shop", count=1) as coordinator:
        with hosting(beside):
            waited(coordinator)
            left = file.read_text()
            assert Here.here().incarnation == coordinator.incarnation
        file.write_text(left)  # as one that was killed leaves it
    with hosting(beside) as again:
        wait_until(lambda: again.has_said("Waiting for the coordinator"))
        assert file.read_text() == left
        with coordinating(tmp_path / "shop", count=1) as coordinator:
            waited(coordinator)
            assert Here.here().incarnation == coordinator.incarnation
    assert not file.exists()
