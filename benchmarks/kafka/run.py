"""The broker, the messages, and each system beside it, one after another."""

from __future__ import annotations

import json
import random
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks import environments
from benchmarks.children import RunError, child
from benchmarks.environments import python_with
from benchmarks.harness import tail
from benchmarks.kafka.messages import PARTITIONS, Row, add, row, rows, value
from benchmarks.kafka.system import EVENTS, WARM_UP, WARM_UP_MESSAGES
from tests.kafka import Kafka

UNCOUNTED = 10
"""The first of the single messages, which warm up."""
CHUNK = 1_000
"""After so many messages it is told how many were made."""
_PATIENCE = 120.0
"""Seconds until a message that is not seen is given up."""

Report = Callable[[], None]


@dataclass(frozen=True)
class Entry:
    """A system that takes part."""

    title: str
    module: str
    durable: bool = True
    requirements: tuple[str, ...] = ()
    """Packages of its own environment; none: it runs in that of Penstock."""


SPARK = "4.0.0"
"""The newest Spark whose connector for Kafka was to be had with all that it needs."""

SYSTEMS = {
    "penstock": Entry("Penstock", "on_penstock"),
    "streaming": Entry(
        f"Structured Streaming of Spark {SPARK}",
        "on_streaming",
        requirements=(f"pyspark=={SPARK}", "pandas<3", "pyarrow", "numpy"),
    ),
    "loop": Entry("plain loop in Python", "on_loop", durable=False),
}


@dataclass(frozen=True)
class Measured:
    """What one system did, in seconds."""

    ingest: float
    latencies: list[float]
    correct: bool

    @property
    def median(self) -> float:
        return statistics.median(self.latencies)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.latencies, n=20, method="inclusive")[-1]


class NotAvailableError(RunError):
    """What a system needs cannot be fetched here."""


@contextmanager
def broker(directory: Path) -> Iterator[Kafka]:
    """The broker of the tests."""
    kafka = Kafka(directory)
    try:
        try:
            kafka.start()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            raise RunError(str(error)) from error
        yield kafka
    finally:
        kafka.kill()


def fill(kafka: Kafka, topic: str, count: int, report: Report) -> None:
    """A new topic with so many messages, evenly over its partitions."""
    kafka.create(topic, PARTITIONS)
    producer = kafka.producer(linger_ms=50, batch_num_messages=10_000)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value(number), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % CHUNK == 0:
            report()
    if producer.flush(60):
        raise RunError(f"Kafka did not take all messages of {topic}")


def prepare(kafka: Kafka, messages: int, report: Report) -> None:
    """The topics that all systems read."""
    fill(kafka, WARM_UP, WARM_UP_MESSAGES, lambda: None)
    fill(kafka, EVENTS, messages, report)


def measure(
    kafka: Kafka, name: str, directory: Path, messages: int, singles: int, report: Report
) -> Measured:
    """Have one system do all of it; `report` is called `steps(singles)` times."""
    source, sink = kafka.create(f"{name}-in", PARTITIONS), kafka.create(f"{name}-out")
    directory.mkdir()
    given = (kafka.address, str(directory), str(messages), source, sink)
    entry = SYSTEMS[name]
    try:
        python = python_with(f"kafka-{name}", entry.requirements)
    except environments.NotAvailableError as error:
        raise NotAvailableError(f"not available: {error}") from error
    try:
        with child(directory, f"benchmarks.kafka.{entry.module}", *given, python=python) as said:
            next(said)  # warm
            report()
            ingested = next(said).content
            report()
            next(said)  # following
            client = Client(kafka, source, sink)
            found = []
            for number in range(UNCOUNTED + singles):
                found.append(client.send(number))
                report()
    except RunError as error:
        log = directory / "engine.log"
        missing = re.search(r"unresolved dependency: (.*?)[,\]]", log.read_text(errors="replace"))
        if missing is not None:
            raise NotAvailableError(f"not available: {missing[1]}") from error
        words = tail(log)  # which an error of the process itself has already
        raise RunError(f"failed: {error}" if words in str(error) else f"failed: {error}; {words}") from error
    correct = client.correct and [tuple(r) for r in ingested["rows"]] == rows(range(messages))
    return Measured(ingested["seconds"], found[UNCOUNTED:], correct)


def steps(singles: int) -> int:
    return 2 + UNCOUNTED + singles


class Client:
    """Sends single messages, and waits for what becomes of each."""

    def __init__(self, kafka: Kafka, source: str, sink: str) -> None:
        self.correct = True
        self._source = source
        self._producer = kafka.producer(linger_ms=0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.address,
                "group.id": "client",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(sink, 0, 0)])
        self._view: dict[int, Row] = {}
        self._random = random.Random(1)

    def send(self, number: int) -> float:
        """Seconds until the row of its kind is seen with it."""
        expected = add(self._view, number)
        # not in step with whoever polls
        time.sleep(self._random.uniform(0.5, 1.0))
        began = time.monotonic()
        self._producer.produce(self._source, value(number), partition=number % PARTITIONS)
        while True:
            message = self._consumer.poll(0.1)
            self._producer.poll(0)
            if message is None:
                if time.monotonic() - began > _PATIENCE:
                    raise RunError(f"message {number} was not seen for {_PATIENCE:.0f} s")
                continue
            seen = time.monotonic() - began
            if message.error() is not None:
                raise RunError(str(KafkaException(message.error())))
            content = json.loads(message.value())
            if "delete" in content:  # the row as it was before
                continue
            self.correct = self.correct and row(content.get("insert", content)) == expected
            return seen
