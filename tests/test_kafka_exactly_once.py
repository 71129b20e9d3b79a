"""From Kafka through views to Kafka: whatever is killed, each change of each transaction is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from penstock.failpoints import FAILPOINTS
from tests.jvm import Jvm, kept_jvm
from tests.kafka import Kafka, started
from tests.oracle.history import seed_of_run

pytestmark = pytest.mark.xdist_group("kafka")

GROUPS = 7
PARTITIONS = 3
BATCH = 250
MESSAGES = int(os.environ.get("PENSTOCK_MESSAGES", "100000"))
LARGE = 4_400
"""Rows of a transaction whose batches are merged in the background."""
Row = tuple[int, ...]


def applies(failpoint: str) -> bool:
    """Whether this pipeline gets there: no client opens transactions, and nothing is skipped or changed."""
    elsewhere = (
        "bootstrap.",
        "sync.",
        "host.",
        "shard.",
        "binding.",
        "replica.",
        "journal.begin",
        "journal.roll-back",
        "journal.skip",
        "journal.payload",
    )
    return not failpoint.startswith(elsewhere)


@dataclass
class Life:
    """A pipeline and a broker that are killed and started again, with what they should come to."""

    broker: Kafka
    directory: Path
    chance: random.Random
    source: str = ""
    rows: str = ""
    sums: str = ""
    latest: str = ""
    table: dict[int, Row] = field(default_factory=dict)
    sent: int = 0
    last: int = 0

    def __post_init__(self) -> None:
        self.source = self.broker.create(partitions=PARTITIONS)
        self.rows = self.broker.create(partitions=2)
        self.sums = self.broker.create(partitions=1)
        self.latest = self.broker.create(partitions=2)

    def send(self, messages: int) -> None:
        """More input: a key stays in its partition, and some keys come again."""
        producer = self.broker.producer(acks="all")
        for _ in range(messages):
            id_ = self.sent if self.chance.random() < 0.7 else self.chance.randrange(self.sent + 1)
            row = (id_, self.chance.randrange(GROUPS), self.chance.randrange(1000))
            self.table[id_] = row
            message = json.dumps(dict(zip(("id", "g", "n"), row, strict=True))).encode()
            producer.produce(self.source, message, str(id_).encode(), partition=id_ % PARTITIONS)
            self.sent += 1
            if self.sent % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def run(
        self,
        failpoint: str = "",
        *,
        kill: float | None = None,
        broker: float | None = None,
        batch: int = BATCH,
        jvm: Jvm | None = None,
    ) -> int:
        """Start it; perhaps kill it or the broker so many seconds after it runs. Returns how it ended."""
        kept = {} if jvm is None else jvm.environment
        # One that is to be killed waits for more than there will be.
        messages = sys.maxsize if kill is not None else self.sent
        topics = [self.source, self.rows, self.sums, self.latest]
        arguments = [self.broker.address, *topics, str(messages), str(batch)]
        with (
            open(self.directory / "stderr", "w+") as errors,
            subprocess.Popen(
                [sys.executable, "-m", "tests.crash.kafka", str(self.directory / "storage"), *arguments],
                env={**os.environ, **kept, "PENSTOCK_FAILPOINT": failpoint},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            line = process.stdout.readline()
            if line:
                last = json.loads(line)["last"]
                assert last >= self.last, "numbers go on"
                self.last = last
            if line and broker is not None:
                time.sleep(broker)
                self.broker.kill()
                time.sleep(self.chance.uniform(0.5, 3))
                revive = threading.Thread(target=self.broker.start)
                revive.start()
                if kill is not None:
                    time.sleep(kill)
                    process.send_signal(signal.SIGKILL)
                revive.join()
            elif line and kill is not None:
                until = time.monotonic() + kill
                while time.monotonic() < until:
                    self.send(50)
                    time.sleep(0.05)
                process.send_signal(signal.SIGKILL)
            process.wait()
            if jvm is not None:
                jvm.end_application()
            errors.seek(0)
            expected = (0, -9) if kill is None else (-9,)
            assert process.returncode in expected, errors.read()[-4000:]
            return process.returncode

    def check(self) -> None:
        """A consumer that is not ours, and reads what is committed, adds everything up."""
        found = self.added_up(self.rows, ("id", "g", "n"), partitions=2)
        assert found == set(self.table.values())
        groups: dict[int, list[Row]] = {}
        for row in self.table.values():
            groups.setdefault(row[1], []).append(row)
        expected = {(g, len(rows), sum(row[2] for row in rows)) for g, rows in groups.items()}
        assert self.added_up(self.sums, ("g", "c", "s"), partitions=1) == expected
        latest: dict[bytes, dict[str, int]] = {}
        for partition in range(2):
            for message in committed(self.broker.address, self.latest, partition):
                latest[message.key()] = json.loads(message.value())
        assert {(row["id"], row["n"]) for row in latest.values()} == {
            (id_, n) for id_, _, n in self.table.values()
        }

    def added_up(self, topic: str, columns: tuple[str, ...], partitions: int) -> set[Row]:
        """What the changes come to, transaction by transaction: each takes away only what is there, and adds
        only what is not. One that came twice, or is missing, or is out of order would not fit."""
        transactions: dict[int, list[tuple[str, Row]]] = {}
        for partition in range(partitions):
            before = -1
            for number, change in messages(self.broker.address, topic, partition):
                assert number >= before, "transactions come in order"
                before = number
                ((kind, row),) = change.items()
                transactions.setdefault(number, []).append((kind, tuple(row[c] for c in columns)))
        state: set[Row] = set()
        for number in sorted(transactions):
            gone = [row for kind, row in transactions[number] if kind == "delete"]
            new = [row for kind, row in transactions[number] if kind == "insert"]
            assert len(gone) == len(set(gone)), f"transaction {number} is there twice"
            assert set(gone) <= state, f"transaction {number} takes away what is not there"
            state -= set(gone)
            assert not set(new) & state, f"transaction {number} adds what is there"
            assert len(new) == len(set(new)), f"transaction {number} is there twice"
            state |= set(new)
        return state


def messages(address: str, topic: str, partition: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """All that is committed of a partition: the number of the transaction, and the change."""
    for message in committed(address, topic, partition):
        yield int(dict(message.headers())["penstock-transaction"]), json.loads(message.value())


def committed(address: str, topic: str, partition: int) -> Iterator[Message]:
    """All that is committed of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "not-ours",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return
            yield message
    finally:
        consumer.close()


def test_a_kill_of_the_pipeline_and_one_of_the_broker(tmp_path: Path) -> None:
    with started() as broker:
        life = Life(broker, tmp_path, random.Random(seed_of_run()))
        life.send(3_000)
        assert life.run(kill=1.5) == -9
        life.send(500)
        assert life.run(broker=0.5) == 0
        life.check()


@pytest.mark.slow(minutes=8)
@pytest.mark.timeout(3600)
def test_100_000_messages_with_kills_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(seed_of_run())
    with started() as broker:
        life = Life(broker, tmp_path, chance)
        walked = [point for point in FAILPOINTS if applies(point)]
        with kept_jvm() as jvm:
            for point in walked:
                batch = LARGE if point.startswith("merge.") else BATCH
                life.send(8 * batch if batch == LARGE else 1_000)
                # A replay needs something to replay.
                for each in ["output.after:2", point] if point.startswith("replay.") else [point]:
                    assert life.run(each, batch=batch, jvm=jvm) == -9, f"{each} was never reached"
                    with capsys.disabled():
                        print(f"killed at {each}, transaction {life.last}", flush=True)
        for _ in range(4):
            life.send(1_500)
            life.run(kill=chance.uniform(0, 4))
        for _ in range(2):
            life.send(1_500)
            life.run(broker=chance.uniform(0, 3))
        for _ in range(2):
            life.send(1_500)
            life.run(broker=chance.uniform(0, 2), kill=chance.uniform(0, 2))
        life.send(max(0, MESSAGES - life.sent))
        assert life.run(batch=LARGE) == 0
        life.check()
        with capsys.disabled():
            print(f"{life.sent} messages, {life.last} transactions, {len(walked)} failpoints")
