"""`penstock host` as a process of its own, with Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from penstock.hosts.coordinator import Coordinator
from penstock.hosts.private import write_private
from penstock.hosts.worker import _processes_of, _spark
from tests.hosts.running import PATIENCE, PIPELINE, coordinating, wait_until

DRIVER = """
import sys, time
from pyspark.sql import SparkSession
master, secret = sys.argv[1:]
settings = {
    "spark.authenticate": "true", "spark.authenticate.secret": secret, "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.driver.memory": "512m",
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
builder.getOrCreate().sparkContext.parallelize([0], 1).foreach(lambda _: time.sleep(1000))
"""


@contextmanager
def process(log: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, with its group."""
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "SPARK_DAEMON_MEMORY": "256m", **environment},
        )
    try:
        yield started
    finally:
        try:
            os.killpg(started.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended
        started.wait(PATIENCE)


def host(root: Path, *more: str, index: int = 0) -> tuple[str, ...]:
    command = (sys.executable, "-m", "penstock.cli", "host", "--index", str(index))
    return (*command, "--coordinator", str(root / "shop"), "--storage", str(root / f"host-{index}"), *more)


def test_ctrl_c_ends_a_host_in_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process(log, *host(tmp_path)) as running:
        wait_until(lambda: "Waiting for the coordinator" in log.read_text(), "that it waits")
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE) == 0
    assert "Stopped" in log.read_text()


def test_a_refusal_is_shown_and_ends_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with coordinating(tmp_path / "shop"), process(log, *host(tmp_path, index=2)) as running:
        assert running.wait(PATIENCE) == 1
    said = log.read_text()
    assert "error[HOST_ERROR]" in said
    assert "is started as host 2, but this pipeline has 2 hosts, from 0 to 1" in said
    assert "Traceback" not in said


@contextmanager
def master(root: Path, secret: str) -> Iterator[tuple[str, Path]]:
    """A Spark master: its URL, and its log."""
    properties, log = root / "master.properties", root / "master.log"
    write_private(properties, f"spark.authenticate true\nspark.authenticate.secret {secret}\n")
    with process(
        log,
        str(_spark() / "bin" / "spark-class"),
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--properties-file", str(properties)),
        SPARK_HOME=str(_spark()),
        SPARK_LOCAL_IP="127.0.0.1",
    ):
        found: list[str] = []

        def started() -> bool:
            found[:] = re.findall(r"Starting Spark master at (spark://\S+)", log.read_text())
            return bool(found)

        wait_until(started, "that the master starts")
        yield found[0], log


def names(directory: Path) -> list[str]:
    """What works for a host, as its command lines."""
    found = []
    for one in _processes_of(directory):
        try:
            found.append(" ".join(one.cmdline()))
        except psutil.Error:
            continue  # it ended meanwhile
    return found


@pytest.mark.slow(minutes=1)
def test_nothing_is_left_of_a_host_that_is_killed(tmp_path: Path) -> None:
    """Its Spark worker, an executor and that one's Python workers run, and all end with it."""
    storage, log = tmp_path / "host-0", tmp_path / "log"
    (tmp_path / "shop").mkdir()
    coordinator = Coordinator(tmp_path / "shop", PIPELINE, 1, workers=1)
    with master(tmp_path, coordinator.spark_secret) as (url, master_log):
        coordinator.open(url)
        driver = (sys.executable, "-c", DRIVER, url, coordinator.spark_secret)
        command = host(tmp_path, "--address", "127.0.0.2", "--memory", "1g")
        try:
            with process(log, *command) as running:
                coordinator.wait()
                wait_until(lambda: "worker is registered" in log.read_text(), "that the worker is registered")
                assert re.search(r"Registering worker 127\.0\.0\.2:\d+ with 1 cores", master_log.read_text())
                with process(tmp_path / "driver.log", *driver):
                    wait_until(
                        lambda: sum("pyspark.daemon" in name for name in names(storage)) >= 2, "a task"
                    )
                    assert any("CoarseGrainedExecutorBackend" in name for name in names(storage))
                    running.kill()
                    wait_until(lambda: not names(storage), "that nothing is left")
        finally:
            coordinator.close()
