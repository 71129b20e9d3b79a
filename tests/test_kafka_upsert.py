"""The envelope `upsert`: a table that follows the keys of a topic, through restarts and bad messages."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import penstock
from penstock.errors import ConnectorError, ProgramError, StateError
from tests.kafka import Kafka

pytestmark = pytest.mark.xdist_group("kafka")


class Keyed:
    """A topic with keys, and the pipeline that follows it."""

    def __init__(self, broker: Kafka, storage: Path, partitions: int = 1, **config: Any) -> None:
        self.topic = broker.create(partitions=partitions)
        self.producer: Producer = broker.producer()
        self.storage = storage
        settings = {
            "topic": self.topic,
            "bootstrap.servers": broker.address,
            "envelope": "upsert",
            "include_offset": True,
            **config,
        }
        entry = {
            "name": "k",
            "transport": {"name": "kafka_input", "config": settings},
            "format": {"name": "json"},
        }
        self.program = f"""
            CREATE TABLE t (
                id BIGINT PRIMARY KEY,
                name STRING NOT NULL,
                n INT DEFAULT 7,
                at BIGINT DEFAULT CONNECTOR_METADATA()['kafka_offset']
            ) WITH ('connectors' = '{json.dumps([entry])}');
            CREATE MATERIALIZED VIEW names AS SELECT name, count(*) AS c FROM t GROUP BY name;
        """

    def send(self, key: Any, value: Any, *, partition: int = 0, timestamp: int = 0) -> None:
        raw_key, raw = (
            x if x is None or isinstance(x, bytes) else json.dumps(x).encode() for x in (key, value)
        )
        self.producer.produce(self.topic, raw, raw_key, partition=partition, timestamp=timestamp)
        self.producer.flush()

    @contextmanager
    def running(self) -> Iterator[penstock.Pipeline]:
        with penstock.Pipeline(
            "keyed", program=self.program, storage=str(self.storage), config={"workers": 2}
        ) as pipeline:
            yield pipeline


def table(pipeline: penstock.Pipeline) -> dict[int, str]:
    # By one query: a transaction may come between two.
    rows = pipeline.query("SELECT t.id, t.name, n.c FROM t FULL JOIN names n USING (name)").to_pylist()
    found = {row["id"]: row["name"] for row in rows}
    counts = Counter(found.values())
    assert {row["name"]: row["c"] for row in rows} == counts
    return found


def errors(pipeline: penstock.Pipeline) -> dict[int, str]:
    return {row["id"]: row["record"] for row in pipeline.query("SELECT * FROM t_errors").to_pylist()}


def until(pipeline: penstock.Pipeline, rows: dict[int, str], wrong: dict[int, str] | None = None) -> None:
    """Wait until the table and the errors are these."""
    deadline = time.monotonic() + 240
    while (found := (table(pipeline), errors(pipeline))) != (rows, wrong or {}):
        assert time.monotonic() < deadline, f"{found} instead of {(rows, wrong)}"
        time.sleep(0.1)


def test_the_whole_matrix_through_restarts(kafka: Kafka, tmp_path: Path) -> None:
    keyed = Keyed(kafka, tmp_path / "s", partitions=2)
    with keyed.running() as pipeline:
        keyed.send({"id": 1}, {"name": "a"})  # insert
        keyed.send(2, {"name": "b", "n": 1})  # the only column of a key may stand alone
        keyed.send({"id": 3}, {"name": "c"})
        until(pipeline, {1: "a", 2: "b", 3: "c"})
        assert pipeline.query("SELECT n, at FROM t WHERE id = 1").to_pylist() == [{"n": 7, "at": 0}]
        keyed.send({"id": 1}, {"name": "a2"})  # update
        keyed.send({"id": 2}, None)  # delete
        keyed.send({"id": 99}, None)  # delete of an absent key
        keyed.send({"id": 3}, {"name": "c"})  # the same value again
        until(pipeline, {1: "a2", 3: "c"})
        keyed.send({"id": 3}, b"broken")
        until(pipeline, {1: "a2"}, {3: "broken"})
        assert "is not JSON" in pipeline.query("SELECT error FROM t_errors").column(0)[0].as_py()
        pipeline.kill()
    with keyed.running() as pipeline:
        until(pipeline, {1: "a2"}, {3: "broken"})
        keyed.send({"id": 3}, {"name": "c3"})  # bad value, then a good one
        keyed.send({"id": 2}, {"name": "b2"})  # reinsert
        keyed.send({"id": 1}, {"wrong": 1})  # a column that is NOT NULL is missing
        until(pipeline, {2: "b2", 3: "c3"}, {1: '{"wrong": 1}'})
        keyed.send({"id": 1}, b"worse")  # another error takes its place
        until(pipeline, {2: "b2", 3: "c3"}, {1: "worse"})
    with keyed.running() as pipeline:
        until(pipeline, {2: "b2", 3: "c3"}, {1: "worse"})
        keyed.send({"id": 1}, None)  # bad value, then none
        keyed.send(b"nonsense", {"name": "x"})  # a bad key
        keyed.send({"id": None}, {"name": "x"})
        keyed.send(None, {"name": "x"})  # no key
        # Out of order in time, and in order in the log: the log decides.
        now = int(time.time() * 1000)
        keyed.send({"id": 4}, {"name": "newer"}, timestamp=now)
        keyed.send({"id": 4}, {"name": "older"}, timestamp=now - 60_000)
        until(pipeline, {2: "b2", 3: "c3", 4: "older"})
        stats = pipeline.stats()["inputs"]["k"]
        assert stats["bad_records"] == 3
        reasons = [record["reason"] for record in stats["bad_records_shown"]]
        assert any(reason.startswith("key: ") for reason in reasons) or any("no key" in r for r in reasons)
        with pytest.raises(StateError, match="there is no table t_errors"):
            pipeline.insert("t_errors", [{"id": 1}])
    with keyed.running() as pipeline:
        until(pipeline, {2: "b2", 3: "c3", 4: "older"})


def test_what_comes_last_for_a_key_in_one_transaction(kafka: Kafka, tmp_path: Path) -> None:
    keyed = Keyed(kafka, tmp_path / "s", partitions=2)
    keyed.send(1, {"name": "a"})
    keyed.send(1, b"bad")
    keyed.send(1, {"name": "b"})
    keyed.send(2, {"name": "a"})
    keyed.send(2, b"bad")
    keyed.send(3, {"name": "a"}, partition=1)
    keyed.send(3, {"name": "lower partition"}, partition=0)
    keyed.send(4, b"bad")
    keyed.send(4, None)
    with keyed.running() as pipeline:
        until(pipeline, {1: "b", 3: "a"}, {2: "bad"})
        assert pipeline.stats()["transactions"] == 1


def test_the_order_of_the_log_counts_in_all_steps_of_a_transaction(kafka: Kafka, tmp_path: Path) -> None:
    keyed = Keyed(kafka, tmp_path / "s", partitions=2)
    with keyed.running() as pipeline:
        number = pipeline.start_transaction()
        keyed.send(1, {"name": "higher"}, partition=1)
        _steps(pipeline, 1)
        keyed.send(1, {"name": "lower"}, partition=0)
        _steps(pipeline, 2)
        pipeline.commit_transaction(number)
        until(pipeline, {1: "higher"})
        pipeline.kill()
    with keyed.running() as pipeline:
        until(pipeline, {1: "higher"})


def _steps(pipeline: penstock.Pipeline, least: int) -> None:
    deadline = time.monotonic() + 240
    while pipeline.stats()["transaction"]["steps"] < least:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_rows_from_elsewhere_retract_errors_too(kafka: Kafka, tmp_path: Path) -> None:
    keyed = Keyed(kafka, tmp_path / "s")
    keyed.send(1, b"bad")
    with keyed.running() as pipeline:
        until(pipeline, {}, {1: "bad"})
        pipeline.insert("t", [{"id": 1, "name": "from the API"}])
        pipeline.flush()
        until(pipeline, {1: "from the API"})


def test_the_name_of_the_errors_is_taken(kafka: Kafka, tmp_path: Path) -> None:
    keyed = Keyed(kafka, tmp_path / "s")
    keyed.program += "CREATE VIEW t_errors AS SELECT 1 AS one;"
    with pytest.raises(ProgramError, match="the name t_errors is taken"), keyed.running():
        pass


def test_a_wrapped_format_has_no_keys(kafka: Kafka, tmp_path: Path) -> None:
    keyed = Keyed(kafka, tmp_path / "s")
    wrapped = '{"name": "json", "config": {"update_format": "debezium"}}'
    keyed.program = keyed.program.replace('{"name": "json"}', wrapped)
    with pytest.raises(ConnectorError, match="expected the update_format 'raw'"), keyed.running():
        pass
