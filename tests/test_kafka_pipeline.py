"""Pipelines that read and write Kafka: what a restart finds, and a broker that comes and goes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

import penstock
from penstock.connectors import mark_of
from penstock.controller import outputs
from penstock.errors import (
    ConnectorError,
    DataCompactedError,
    DataExpiredError,
    StateError,
    StorageError,
    TopicRecreatedError,
)
from penstock.sql import parse_program
from tests.kafka import Kafka, started
from tests.test_kafka_exactly_once import messages

pytestmark = pytest.mark.xdist_group("kafka")


def entry(name: str, kind: str, format: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    transport = {"name": kind, "config": config}
    return {"name": name, "transport": transport, "format": format or {"name": "json"}}


def program(source: dict[str, Any], *outputs: dict[str, Any]) -> str:
    return f"""
    CREATE TABLE t (id BIGINT, n BIGINT) WITH ('connectors' = '{json.dumps([source])}');
    CREATE MATERIALIZED VIEW total WITH ('connectors' = '{json.dumps(outputs)}') AS
        SELECT id % 2 AS odd, sum(n) AS n FROM t GROUP BY id % 2;
    CREATE INDEX by_odd ON total (odd);
    """


def pipeline(storage: Path, text: str) -> penstock.Pipeline:
    return penstock.Pipeline("k", program=text, storage=str(storage), config={"workers": 1})


def send(broker: Kafka, topic: str, first: int, last: int, partition: int = 0) -> None:
    producer = broker.producer()
    for number in range(first, last):
        producer.produce(topic, json.dumps({"id": number, "n": 1}).encode(), partition=partition)
    assert producer.flush(30) == 0


def total(p: penstock.Pipeline) -> int:
    found = p.query("SELECT coalesce(sum(n), 0) AS n FROM total").to_pylist()[0]["n"]
    return int(found)


def until(what: Callable[[], Any], wanted: Any = True, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while (found := what()) != wanted:
        assert time.monotonic() < deadline, f"{found!r}, and {wanted!r} is wanted"
        time.sleep(0.1)


def test_the_group_has_the_last_offsets_after_a_stop(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create()
    config = {"topic": topic, "bootstrap.servers": kafka.address, "group.id": f"watch-{topic}"}
    send(kafka, topic, 0, 10)
    with pipeline(tmp_path, program(entry("in", "kafka_input", **config))) as p:
        number = p.start_transaction()
        until(lambda: p.stats()["transaction"]["rows"], 10)
        p.commit_transaction(number)
    watcher = Consumer({"bootstrap.servers": kafka.address, "group.id": f"watch-{topic}"})
    try:
        [place] = watcher.committed([TopicPartition(topic, 0)], timeout=10)
        assert place.offset == 10
    finally:
        watcher.close()


def test_a_topic_that_was_made_again_fails_its_connector_and_nothing_else(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.create()
    text = program(entry("in", "kafka_input", topic=topic, **{"bootstrap.servers": kafka.address}))
    send(kafka, topic, 0, 10)
    with pipeline(tmp_path, text) as p:
        until(lambda: total(p), 10)
    kafka.delete(topic)
    kafka.create(topic)
    send(kafka, topic, 100, 120)
    with pipeline(tmp_path, text) as p:
        until(lambda: p.stats()["inputs"]["in"]["status"], "failed")
        assert "was deleted and made again" in p.stats()["inputs"]["in"]["last_error"]
        p.insert("t", [{"id": 1, "n": 5}])
        with pytest.raises(TopicRecreatedError, match="give the connector another name"):
            p.flush()
        assert total(p) == 15


def test_what_a_replay_needs_is_gone(kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.create()
    config = {"topic": topic, "bootstrap.servers": kafka.address}
    text = program(entry("in", "kafka_input", **config))
    send(kafka, topic, 0, 10)
    p = pipeline(tmp_path, text)
    p.start()
    until(lambda: total(p), 10)
    p.kill()
    place = TopicPartition(topic, 0, 6)
    kafka.admin.delete_records([place])[place].result(30)
    with pytest.raises(DataExpiredError, match=r"offsets 0 to 6 .* expired before they could be read again"):
        pipeline(tmp_path, text).start()
    lenient = program(entry("in", "kafka_input", **config, resume_earliest_if_data_expires=True))
    with pipeline(tmp_path, lenient) as p:
        until(lambda: total(p), 4)
        assert "they are missing in the views from now on" in caplog.text
        send(kafka, topic, 10, 12)
        until(lambda: total(p), 6)
        p.kill()
    kafka.delete(topic)
    kafka.create(topic)
    send(kafka, topic, 0, 20)
    with pytest.raises(TopicRecreatedError, match="its id was"):
        pipeline(tmp_path, lenient).start()


def test_a_replay_of_a_compacted_topic(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with started(log_cleaner_backoff_ms=200, log_initial_task_delay_ms=500) as broker:
        settings = {"cleanup_policy": "compact", "segment_ms": 100, "max_compaction_lag_ms": 100}
        topic = broker.create(**settings, min_cleanable_dirty_ratio=0.001)
        config = {"topic": topic, "bootstrap.servers": broker.address, "envelope": "upsert"}

        def text(**more: Any) -> str:
            keyed = program(entry("in", "kafka_input", **config, **more))
            return keyed.replace("id BIGINT,", "id BIGINT PRIMARY KEY,")

        def put(key: int, n: int) -> None:
            producer.produce(topic, json.dumps({"n": n}).encode(), str(key).encode())
            producer.flush()

        producer = broker.producer()
        p = pipeline(tmp_path, text())
        p.start()
        for n in range(20):
            put(n % 2, n)
        until(lambda: total(p), 18 + 19)
        p.kill()
        time.sleep(0.3)
        put(2, 100)
        until(lambda: left(broker, topic), 3)
        with pytest.raises(DataCompactedError, match=r"in: messages of .* compacted .*min\.compaction\.lag"):
            pipeline(tmp_path, text()).start()
        with pipeline(tmp_path, text(resume_earliest_if_data_expires=True)) as p:
            until(lambda: total(p), 18 + 19 + 100)
        assert "the last message of each key decides" in caplog.text


def left(broker: Kafka, topic: str) -> int:
    """How many messages a partition still has."""
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "not-ours", "enable.partition.eof": True}
    )
    found = 0
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found += 1
        assert message is not None
    finally:
        consumer.close()
    return found


def test_a_partition_that_is_added_while_it_runs(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create()
    text = program(entry("in", "kafka_input", topic=topic, **{"bootstrap.servers": kafka.address}))
    with pipeline(tmp_path, text) as p:
        send(kafka, topic, 0, 5)
        until(lambda: total(p), 5)
        kafka.grow(topic, 2)
        send(kafka, topic, 5, 8, partition=1)
        until(lambda: total(p), 8)
        assert set(p.stats()["inputs"]["in"]["partitions"]) == {f"{topic}[0]", f"{topic}[1]"}
        p.kill()
    with pipeline(tmp_path, text) as p:
        assert total(p) == 8


def test_a_broker_that_is_away(tmp_path: Path) -> None:
    with started() as broker:
        source, sink = broker.create(), broker.create()
        config = {"bootstrap.servers": broker.address}
        keyed = {"name": "json", "config": {"update_format": "raw"}}
        out = tmp_path / "total.jsonl"
        text = program(
            entry("in", "kafka_input", topic=source, **config),
            {**entry("keyed", "kafka_output", keyed, topic=sink, **config), "index": "by_odd"},
            entry("file", "file_output", path=str(out)),
        )
        send(broker, source, 0, 10)
        with pipeline(tmp_path / "s", text) as p:
            until(lambda: p.stats()["outputs"]["keyed"]["transaction"] > 0)
            broker.kill()
            for _ in range(3):  # other inputs and outputs go on, and so do checkpoints
                p.insert("t", [{"id": 1, "n": 1}])
                p.flush()
            until(lambda: p.stats()["outputs"]["file"]["behind"], 0)
            assert total(p) == 13
            until(lambda: p.stats()["outputs"]["keyed"]["status"], "retrying")
            assert p.stats()["inputs"]["in"]["status"] == "retrying"
            p.checkpoint()
        # It is away at the next start, too.
        with pipeline(tmp_path / "s", text) as p:
            assert total(p) == 13
            p.insert("t", [{"id": 1, "n": 1}])
            p.flush()
            broker.start()
            send(broker, source, 10, 20)
            until(lambda: total(p), 24)
            until(lambda: p.stats()["outputs"]["keyed"]["behind"], 0)
        state: dict[str, Any] = {}
        numbers = []
        for number, key, value in keyed_messages(broker.address, sink):
            numbers.append(number)
            state[key] = value
        assert state == {'{"odd":0}': {"odd": 0, "n": 10}, '{"odd":1}': {"odd": 1, "n": 14}}
        assert numbers == sorted(numbers)


def test_requests_and_restarts_do_not_wait_for_a_broker_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_KEPT", 2)
    made = entry("made", "datagen", plan=[{"limit": 0, "fields": {}}])
    del made["format"]
    nowhere = entry("out", "kafka_output", topic="t", **{"bootstrap.servers": "127.0.0.1:1"})
    text = program(made, nowhere)
    p = pipeline(tmp_path, text)
    p.start()
    for n in range(2):
        p.insert("t", [{"id": 1, "n": 1}])
        p.flush()
        assert total(p) == n + 1
    p.insert("t", [{"id": 1, "n": 1}])  # there is no room for it
    time.sleep(0.5)
    assert (total(p), p.stats()["queued_rows"]) == (2, 1)
    p.pause_connector("made")
    with pytest.raises(StateError, match="no transaction is open"):
        p.commit_transaction()
    p.checkpoint()
    p.kill()
    p = pipeline(tmp_path, text)
    p.start()
    number = p.start_transaction()
    p.insert("t", [{"id": 1, "n": 5}])
    p.rollback_transaction(number)
    number = p.start_transaction()
    p.insert("t", [{"id": 1, "n": 5}])
    p.commit_transaction(number)
    assert total(p) == 7
    p.kill()
    monkeypatch.setattr(outputs, "MAX_KEPT", 1)
    with pipeline(tmp_path, text) as p:  # what it replays has no room, either
        assert (total(p), p.stats()["outputs"]["out"]["behind"]) == (7, 3)


def keyed_messages(address: str, topic: str) -> list[tuple[int, str, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "not-ours",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            number = int(dict(message.headers())["penstock-transaction"])
            key = json.dumps(json.loads(message.key()), separators=(",", ":"))
            found.append((number, key, None if message.value() is None else json.loads(message.value())))
        assert message is not None
    finally:
        consumer.close()
    return found


def test_the_address_of_the_cluster_may_change_and_the_topic_may_not(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create()
    config = {"topic": topic, "bootstrap.servers": kafka.address}
    send(kafka, topic, 0, 10)
    p = pipeline(tmp_path, program(entry("in", "kafka_input", **config)))
    p.start()
    until(lambda: total(p), 10)
    p.kill()
    moved = {**config, "bootstrap.servers": f"127.0.0.1:1,{kafka.address}", "fetch.wait.max.ms": "50"}
    with pipeline(tmp_path, program(entry("in", "kafka_input", **moved))) as p:
        assert total(p) == 10
        send(kafka, topic, 10, 15)
        until(lambda: total(p), 15)
    with pytest.raises(StorageError, match=r"transport.config.topic was"):
        pipeline(tmp_path, program(entry("in", "kafka_input", **{**moved, "topic": "other"}))).start()


def test_a_rolled_back_transaction_reads_its_messages_again(kafka: Kafka, tmp_path: Path) -> None:
    topic, sink = kafka.create(), kafka.create()
    config = {"bootstrap.servers": kafka.address}
    text = program(
        entry("in", "kafka_input", topic=topic, **config), entry("out", "kafka_output", topic=sink, **config)
    )
    with pipeline(tmp_path, text) as p:
        number = p.start_transaction()
        send(kafka, topic, 0, 10)
        until(lambda: p.stats()["transaction"]["rows"], 10)
        p.rollback_transaction(number)
        until(lambda: total(p), 10)
        until(lambda: p.stats()["outputs"]["out"]["behind"], 0)
    found = list(messages(kafka.address, sink, 0))
    assert [number + 1] * 2 == [transaction for transaction, _ in found]
    assert sorted(change["insert"]["n"] for _, change in found) == [5, 5]


def test_an_output_whose_messages_have_expired_does_not_begin_anew(kafka: Kafka, tmp_path: Path) -> None:
    sink = kafka.create()
    config = {"bootstrap.servers": kafka.address}
    source = entry("made", "datagen", plan=[{"limit": 10, "fields": {"n": {"range": [1, 2]}}}])
    del source["format"]
    text = program(source, entry("out", "kafka_output", topic=sink, **config))

    def expire() -> None:
        end = kafka.admin.list_offsets({TopicPartition(sink, 0): OffsetSpec.latest()})
        place = TopicPartition(sink, 0, next(iter(end.values())).result().offset)
        kafka.admin.delete_records([place])[place].result(30)

    with pipeline(tmp_path, text) as p:
        p.wait()
        until(lambda: p.stats()["outputs"]["out"]["behind"], 0)
    expire()
    with pipeline(tmp_path, text) as p:  # the checkpoint knows that it has everything
        assert list(messages(kafka.address, sink, 0)) == []
        p.insert("t", [{"id": 1, "n": 5}])
        p.flush()
        assert [list(change) for _, change in messages(kafka.address, sink, 0)] == [["delete"], ["insert"]]
        p.kill()
    expire()
    with pytest.raises(ConnectorError, match=r"messages of the topic .* have expired, its own among them"):
        pipeline(tmp_path, text).start()
    kafka.delete(sink)
    kafka.create(sink)
    with pipeline(tmp_path, text) as p:
        until(lambda: p.stats()["outputs"]["out"]["behind"], 0)
    assert {change["insert"]["odd"] for _, change in messages(kafka.address, sink, 0)} == {0, 1}


def test_what_makes_a_connector_the_one_that_it_is() -> None:
    def mark(text: str) -> object:
        view = parse_program(text).views[0]
        return mark_of(view.connectors[0], view)

    out = entry("out", "kafka_output", {"name": "avro", "config": {"schema": "{}"}}, topic="a")
    source = entry("in", "kafka_input", topic="b")
    before = mark(program(source, {**out, "index": "by_odd"}))
    moved = json.loads(json.dumps({**out, "index": "by_odd"}))
    moved["transport"]["config"]["bootstrap.servers"] = "elsewhere:9092"
    moved["format"]["config"]["registry_urls"] = ["http://registry"]
    assert mark(program(source, moved)) == before
    other_key = program(source, {**out, "index": "by_odd"}).replace("total (odd)", "total (n)")
    assert mark(other_key) != before
