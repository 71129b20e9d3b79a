"""A real Kafka broker for tests and benchmarks: one node in KRaft mode on a free port of 127.0.0.1.

The broker comes from Maven's central repository, by the Ivy that PySpark brings along, and is kept in the
virtual environment.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.servers import free_port

VERSION = "4.1.0"

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    # A broker that was killed is let in again only when its last session has ended.
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "num.network.threads": 2,
    "num.io.threads": 2,
}


def jars() -> Path:
    """The directory of the broker's jars; fetches them if that was not done before."""
    target = Path(sys.prefix) / "share" / f"kafka-{VERSION}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not target.exists():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    ivy = next((Path(spark.origin).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        done = subprocess.run(
            [
                *("java", "-jar", str(ivy), "-cache", f"{directory}/cache", "-confs", "default"),
                *("-dependency", "org.apache.kafka", "kafka_2.13", VERSION),
                *("-retrieve", f"{directory}/jars/[artifact]-[revision](-[classifier]).[ext]"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
        if done.returncode or not any(Path(directory, "jars").glob("kafka_*.jar")):
            lines = done.stdout.strip().splitlines() or ["Ivy said nothing"]
            raise RuntimeError(f"Kafka's jars cannot be fetched: {lines[-1]}")
        Path(directory, "jars").rename(target)


@dataclass
class Kafka:
    """A broker that can be killed and started again with its data."""

    directory: Path
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    settings: Mapping[str, object] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _admin: AdminClient | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:  # what it promised is never kept if it is collected meanwhile
            self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        return self._admin

    def producer(self, **settings: object) -> Producer:
        """Somebody else who writes; underscores in the names of settings stand for dots."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.address, "log_level": 0, "linger.ms": 1, **named})

    def start(self) -> None:
        """Start it and wait until it answers."""
        properties = self.directory / "server.properties"
        if not properties.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            values = {
                **_SETTINGS,
                "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.controller_port}",
                "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
                "log.dirs": self.directory / "data",
                **self.settings,
            }
            properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            identity = uuid.uuid4().hex[:22]
            self._java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)).wait(60)
        self._process = self._java("kafka.Kafka", str(properties))
        deadline = time.monotonic() + 240
        while True:
            try:
                self.admin.list_topics(timeout=1)
                return
            except KafkaException:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka does not start: {self.log[-500:]}") from None

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen(
                [
                    *("java", "-Xmx512m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
                    *("-cp", f"{jars()}/*", *arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it hang: connections stay, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    # -- topics ---------------------------------------------------------------------------------

    def create(self, topic: str | None = None, partitions: int = 1, **settings: object) -> str:
        """A new topic; underscores in the names of settings stand for dots."""
        topic = topic or f"topic-{uuid.uuid4().hex[:8]}"
        config = {name.replace("_", "."): str(value) for name, value in settings.items()}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        self.admin.create_topics([wanted])[topic].result(30)
        self._until(topic, partitions)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        self._until(topic, 0)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, to have that many."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self._until(topic, partitions)

    def _until(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + 240
        while True:
            found = self.admin.list_topics(timeout=10).topics.get(topic)
            if len(found.partitions if found is not None and found.error is None else ()) == partitions:
                return
            assert time.monotonic() < deadline, f"{topic} does not get {partitions} partitions"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """A broker that all tests of a file share; one that stands idle takes a tenth of a core."""
    with started() as broker:
        yield broker


class started:  # noqa: N801 - reads as a function
    """A broker of one's own, with other settings if need be."""

    def __init__(self, **settings: object) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-kafka-"))
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._broker = Kafka(self._directory, settings=named)

    def __enter__(self) -> Kafka:
        try:
            self._broker.start()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            self.__exit__()
            pytest.skip(f"server: Kafka does not start: {' '.join(str(error).split())}")
        return self._broker

    def __exit__(self, *_: object) -> None:
        self._broker.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


if __name__ == "__main__":  # for trying things out: a broker until Ctrl-C
    with started() as running:
        print(running.address, os.getpid(), flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass
