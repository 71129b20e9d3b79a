"""`kafka_input` against a real broker, without Spark: what is handed out, and what tasks read."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import READING, BadRecord, Split, create_input, read_split, schema_registry
from penstock.connectors.input import kafka as kafka_module
from penstock.connectors.input.kafka import KafkaInput
from penstock.connectors.input.kafka_rows import _timestamp
from penstock.errors import (
    ConnectorError,
    DataExpiredError,
    PartitionsMissingError,
    TopicRecreatedError,
    UnreachableError,
)
from penstock.sql import Table, parse_program
from tests.kafka import Kafka, started
from tests.test_kafka_output import SCHEMA, changes, output, registry

__all__ = ["registry"]

pytestmark = pytest.mark.xdist_group("kafka")

JSON = {"name": "json"}
COLUMNS = "id BIGINT, name STRING"
EARLIER = int(time.time() - 3600) * 1000
"""Milliseconds: a time that no retention is shorter than."""


class Source:
    """A table with one input, and what its messages come to."""

    def __init__(
        self,
        broker: Kafka,
        topic: str | list[str],
        columns: str = COLUMNS,
        format: Mapping[str, Any] | None = JSON,
        **config: Any,
    ) -> None:
        self.bad: list[BadRecord] = []
        named = {"topics" if isinstance(topic, list) else "topic": topic}
        settings = {**named, "bootstrap.servers": broker.address, **config}
        entry: dict[str, Any] = {
            "name": "k",
            "transport": {"name": "kafka_input", "config": settings},
        }
        if format is not None:
            entry["format"] = format
        text = json.dumps([entry]).replace("\\", "\\\\")
        self.table: Table = parse_program(
            f"CREATE TABLE t ({columns}) WITH ('connectors' = '{text}')"
        ).tables[0]
        self.input = create_input(self.table.connectors[0], self.table)
        assert isinstance(self.input, KafkaInput)

    def rows(self, splits: Iterable[Split]) -> list[dict[str, Any]]:
        schema = to_arrow_schema(self.table.schema, timezone="UTC")
        found: list[dict[str, Any]] = []
        for split in splits:
            dressed = Split(split.source, {**split.payload, READING: self.input.reading}, split.rows)
            for batch in read_split(dressed, schema, {}, self.bad.append):
                assert batch.num_rows <= 65_536
                found += pa.Table.from_batches([batch]).to_pylist()
        return found

    def next(self, most: int = 1_000_000) -> list[dict[str, Any]]:
        """The rows of what is new, in the form in which tests compare them."""
        return [_compared(row) for row in self.rows(self.input.poll(most))]


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "_op" or value != 1}


@pytest.fixture
def producer(kafka: Kafka) -> Producer:
    return kafka.producer()


def send(producer: Producer, topic: str, *values: Any, partition: int = 0, **more: Any) -> None:
    for value in values:
        raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, raw, partition=partition, **more)
    producer.flush()


def row(id_: int, name: str | None = None) -> dict[str, Any]:
    return {"id": id_, "name": name}


# -- what is handed out ----------------------------------------------------------------------------


def test_messages_are_rows_in_the_order_of_partitions_and_offsets(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create(partitions=2)
    send(producer, topic, row(3), row(4), partition=1)
    send(producer, topic, row(1), row(2), partition=0)
    source = Source(kafka, topic)
    assert source.next() == [row(1), row(2), row(3), row(4)]
    assert source.next() == []
    send(producer, topic, row(5, "x"), partition=1)
    assert source.next() == [row(5, "x")]
    assert not source.input.ended


def test_several_topics(kafka: Kafka, producer: Producer) -> None:
    first, second = sorted([kafka.create(), kafka.create()])
    send(producer, second, row(2))
    send(producer, first, row(1))
    assert Source(kafka, [second, first]).next() == [row(1), row(2)]


def test_a_position_goes_on_in_another_process(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create(partitions=2)
    send(producer, topic, row(1), partition=0)
    send(producer, topic, row(2), partition=1)
    before = Source(kafka, topic)
    before.next()
    position = json.loads(json.dumps(before.input.position))
    send(producer, topic, row(3), partition=0)
    after = Source(kafka, topic)
    after.input.seek(position)
    assert after.next() == [row(3)]


def test_splits_are_the_same_each_time_they_are_read(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create(partitions=2)
    for partition in (0, 1):
        send(producer, topic, *(row(i) for i in range(200)), partition=partition)
    source = Source(kafka, topic)
    splits = source.input.poll(1000)
    assert source.rows(splits) == source.rows(splits)
    assert source.rows(reversed(splits))[200:] == source.rows(splits)[:200]
    assert source.input.readable(splits) == splits


def test_splits_name_ranges_and_nothing_of_the_cluster(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, row(1))
    (split,) = Source(kafka, topic).input.poll(10)
    assert set(split.payload) == {"topic", "id", "partition", "start", "end"}


def test_no_more_than_is_asked_for_and_each_partition_its_share(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create(partitions=2)
    for partition in (0, 1):
        send(producer, topic, *(row(i) for i in range(100)), partition=partition)
    source = Source(kafka, topic)
    splits = source.input.poll(20)
    assert [(s.payload["partition"], s.rows) for s in splits] == [(0, 10), (1, 10)]
    total = 20
    while found := source.next(50):
        assert len(found) <= 50
        total += len(found)
    assert total == 200


def test_a_partition_is_read_by_several_tasks(
    kafka: Kafka, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_module, "SPLIT_MESSAGES", 30)
    topic = kafka.create()
    send(producer, topic, *(row(i) for i in range(100)))
    source = Source(kafka, topic)
    splits = source.input.poll(1000)
    assert [s.rows for s in splits] == [30, 30, 30, 10]
    assert [r["id"] for r in source.rows(splits)] == list(range(100))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [1, 2, 3, 4]),
        ("latest", []),
        ({"offsets": [1, 2]}, [2]),
        ({"timestamp": EARLIER + 2_000}, [2, 4]),
        ({"timestamp": EARLIER + 9_000}, []),
    ],
)
def test_start_from(kafka: Kafka, producer: Producer, start: Any, expected: list[int]) -> None:
    topic = kafka.create(partitions=2)
    send(producer, topic, row(1), partition=0, timestamp=EARLIER + 1_000)
    send(producer, topic, row(2), partition=0, timestamp=EARLIER + 2_000)
    send(producer, topic, row(3), partition=1, timestamp=EARLIER + 1_500)
    send(producer, topic, row(4), partition=1, timestamp=EARLIER + 2_500)
    source = Source(kafka, topic, start_from=start)
    assert [found["id"] for found in source.next()] == expected
    send(producer, topic, row(5), partition=1)
    assert [found["id"] for found in source.next()] == [5]


def test_a_start_that_depends_on_the_moment_is_recorded_at_once(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, row(1))
    source = Source(kafka, topic, start_from="latest")
    (split,) = source.input.poll(10)
    assert (split.rows, split.payload["start"], split.payload["end"]) == (0, 1, 1)
    send(producer, topic, row(2))
    after = Source(kafka, topic, start_from="latest")
    after.input.seek(source.input.position)
    assert after.next() == [row(2)]


def test_going_back_to_before_the_first_message_is_to_where_it_began(
    kafka: Kafka, producer: Producer
) -> None:
    topic = kafka.create()
    source = Source(kafka, topic, start_from="latest")
    before = source.input.position
    source.next()
    send(producer, topic, row(1))
    assert source.next() == [row(1)]
    source.input.seek(before)
    assert source.next() == [row(1)]


def test_some_partitions_only(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create(partitions=3)
    for partition in range(3):
        send(producer, topic, row(partition), partition=partition)
    source = Source(kafka, topic, partitions=[2, 0], start_from={"offsets": [1, 0]})
    assert source.next() == [row(0)]
    send(producer, topic, row(7), partition=2)
    send(producer, topic, row(8), partition=1)
    assert source.next() == [row(7)]


def test_new_partitions_are_picked_up(
    kafka: Kafka, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_module, "_LOOK_SECONDS", 0.1)
    topic = kafka.create()
    source = Source(kafka, topic, start_from="latest")
    source.next()
    kafka.grow(topic, 3)
    send(kafka.producer(), topic, row(1), partition=2)
    assert _eventually(source.next) == [row(1)]


def _eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 240
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_only_what_is_committed_is_read(kafka: Kafka) -> None:
    topic = kafka.create()
    writer = kafka.producer(transactional_id=f"of-{topic}")
    writer.init_transactions()
    source = Source(kafka, topic)
    writer.begin_transaction()
    send(writer, topic, row(1))
    assert source.next() == []
    writer.commit_transaction()
    assert _eventually(source.next) == [row(1)]
    writer.begin_transaction()
    send(writer, topic, row(2))
    writer.abort_transaction()
    writer.begin_transaction()
    send(writer, topic, row(3))
    writer.commit_transaction()
    found: list[Any] = []
    while len(found) < 1:
        found += source.next()
    assert found == [row(3)]
    splits = Source(kafka, topic).input.poll(100)
    assert sum(split.rows or 0 for split in splits) > 2  # the ends of transactions have offsets, too
    dirty = Source(kafka, topic, **{"isolation.level": "read_uncommitted"})
    assert [found["id"] for found in dirty.next()] == [1, 2, 3]


def test_a_compacted_topic_has_gaps() -> None:
    with started(log_cleaner_backoff_ms=200, log_initial_task_delay_ms=500) as broker:
        topic = broker.create(
            cleanup_policy="compact",
            segment_ms=100,
            min_cleanable_dirty_ratio=0.001,
            max_compaction_lag_ms=100,
        )
        producer = broker.producer()
        for i in range(40):
            send(producer, topic, row(i % 2, str(i)), key=str(i % 2).encode())
        time.sleep(0.3)
        send(producer, topic, row(9, "last"), key=b"9")
        before = Source(broker, topic).input.poll(100)
        deadline = time.monotonic() + 240
        while len(found := Source(broker, topic).next()) > 20 and time.monotonic() < deadline:
            time.sleep(0.3)
        assert len(found) <= 20, "the broker did not compact"
        assert found[-1] == row(9, "last")
        assert sum(split.rows or 0 for split in before) == 41
        again = [_compared(r) for r in Source(broker, topic).rows(before)]
        assert all(one in found for one in again), "it may have been compacted once more"
        assert {one["id"]: one["name"] for one in again} == {0: "38", 1: "39", 9: "last"}


def test_ranges_at_an_end_that_nobody_can_read(kafka: Kafka) -> None:
    """The end of a partition is told once, and more than one range may need to know it."""
    topic = kafka.create()
    writer = kafka.producer(transactional_id=f"of-{topic}")
    writer.init_transactions()
    writer.begin_transaction()
    send(writer, topic, row(1), row(2))
    writer.commit_transaction()
    writer.begin_transaction()
    send(writer, topic, *(row(n) for n in range(10, 15)))
    writer.abort_transaction()
    source = Source(kafka, topic)
    splits = _eventually(lambda: source.input.poll(100))
    while sum(split.rows or 0 for split in splits) < 9:  # with the ends of both transactions
        splits += source.input.poll(100)
    id_ = splits[0].payload["id"]

    def part(start: int, end: int) -> Split:
        payload = {"topic": topic, "id": id_, "partition": 0, "start": start, "end": end}
        return Split("kafka", payload, end - start)

    began = time.monotonic()
    found = source.rows([part(0, 4), part(4, 6), part(6, 9)])
    assert [r["id"] for r in found] == [1, 2]
    assert time.monotonic() - began < 10


# -- what can go wrong with a topic ----------------------------------------------------------------


def test_a_topic_that_was_deleted_and_made_again(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, row(1), row(2))
    source = Source(kafka, topic)
    splits = source.input.poll(10)
    kafka.delete(topic)
    kafka.create(topic)
    send(kafka.producer(), topic, row(3), row(4), row(5))
    after = Source(kafka, topic)
    after.input.seek(source.input.position)
    with pytest.raises(
        TopicRecreatedError, match=rf"connector k: the topic {topic} was deleted and made again"
    ):
        after.input.poll(10)
    with pytest.raises(TopicRecreatedError, match="its id was"):
        after.input.readable(splits)
    with pytest.raises(TopicRecreatedError, match="its id was"):
        source.rows(splits)  # it may have waited to be read


def test_a_topic_that_is_made_again_while_it_is_read(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, row(1), row(2))
    source = Source(kafka, topic)
    source.next()
    kafka.delete(topic)
    kafka.create(topic)
    with pytest.raises(TopicRecreatedError, match="its id was"):
        _eventually(lambda: _polled(source))


def _polled(source: Source) -> list[Split]:
    """As the pipeline does it."""
    try:
        return source.input.poll(10)
    except UnreachableError:
        return []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lasts for a moment counts."""
    monkeypatch.setattr(kafka_module, "PATIENCE_SECONDS", 0.3)


def test_a_topic_that_lost_messages(kafka: Kafka, producer: Producer, impatient: None) -> None:
    topic = kafka.create()
    send(producer, topic, row(1))
    source = Source(kafka, topic)
    source.next()
    position = source.input.position
    position["topics"][topic]["next"]["0"] = 5
    source.input.seek(position)
    with pytest.raises(UnreachableError, match="ends at offset 1, and was read up to 5"):
        source.input.poll(10)
    with pytest.raises(TopicRecreatedError, match="or lost messages: partition 0 ends at offset 1"):
        _eventually(lambda: _polled(source))


def test_a_topic_that_is_gone(kafka: Kafka, producer: Producer, impatient: None) -> None:
    topic = kafka.create()
    send(producer, topic, row(1))
    source = Source(kafka, topic)
    source.next()
    kafka.delete(topic)
    after = Source(kafka, topic)
    after.input.seek(source.input.position)
    with pytest.raises(UnreachableError, match=f"the topic {topic} is gone"):
        after.input.poll(10)  # a broker may not know it for a moment
    with pytest.raises(PartitionsMissingError, match=f"the topic {topic} is gone"):
        _eventually(lambda: _polled(after))


def test_fewer_partitions_than_before(kafka: Kafka, producer: Producer, impatient: None) -> None:
    topic = kafka.create(partitions=1)
    source = Source(kafka, topic)
    source.input.poll(10)
    position = source.input.position
    position["topics"][topic]["next"]["1"] = 0
    source.input.seek(position)
    with pytest.raises(PartitionsMissingError, match="has 1 partitions, and partition 1 was read before"):
        _eventually(lambda: _polled(source))


def _expire(kafka: Kafka, topic: str, offset: int) -> None:
    """Have the broker delete everything before an offset, as its retention would."""
    place = TopicPartition(topic, 0, offset)
    kafka.admin.delete_records([place])[place].result(30)


def test_messages_that_expired_before_they_were_read(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, *(row(i) for i in range(10)))
    source = Source(kafka, topic)
    source.input.poll(3)
    position = source.input.position
    _expire(kafka, topic, 6)
    after = Source(kafka, topic)
    after.input.seek(position)
    with pytest.raises(
        DataExpiredError, match=r"offsets 3 to 6 of .* expired .*resume_earliest_if_data_expires"
    ):
        after.input.poll(10)
    lenient = Source(kafka, topic, resume_earliest_if_data_expires=True)
    lenient.input.seek(position)
    assert [found["id"] for found in lenient.next()] == [6, 7, 8, 9]


def test_messages_that_expired_before_they_were_read_again(
    kafka: Kafka, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.create()
    send(producer, topic, *(row(i) for i in range(10)))
    source = Source(kafka, topic)
    splits = source.input.poll(8)
    _expire(kafka, topic, 6)
    with pytest.raises(
        DataExpiredError, match=r"offsets 0 to 6 of .* expired before they could be read again"
    ):
        source.input.readable(splits)
    with pytest.raises(DataExpiredError, match="the first one that is still there is 6"):
        source.rows(splits)
    lenient = Source(kafka, topic, resume_earliest_if_data_expires=True)
    left = lenient.input.readable(splits)
    assert [found["id"] for found in lenient.rows(left)] == [6, 7]
    assert [found["id"] for found in lenient.rows(splits)] == [6, 7]
    gap = [(bad.position, bad.reason) for bad in lenient.bad]
    assert gap == [(f"{topic}[0], offsets 0 to 6", "expired before they were read")]
    _expire(kafka, topic, 9)
    assert lenient.input.readable(splits) == []
    assert lenient.rows(splits) == []
    assert "they are missing in the views from now on" in caplog.text


def test_a_broker_that_is_not_there_is_tried_again(kafka: Kafka) -> None:
    source = Source(kafka, "anything", **{"bootstrap.servers": "127.0.0.1:1"})
    begin = time.monotonic()
    with pytest.raises(UnreachableError, match=r"Kafka at 127\.0\.0\.1:1"):
        source.input.poll(10)
    assert time.monotonic() - begin < 15


def test_no_right_to_any_group_is_needed() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with started(authorizer_class_name=authorizer, allow_everyone_if_no_acl_found="true") as broker:
        everyone, kind = "User:*", AclPermissionType.DENY
        denied = AclBinding(
            ResourceType.GROUP, "*", ResourcePatternType.LITERAL, everyone, "*", AclOperation.ALL, kind
        )
        broker.admin.create_acls([denied])[denied].result(30)
        topic = broker.create(partitions=2)
        producer = broker.producer()
        source = Source(broker, topic)
        for number in range(8):
            send(producer, topic, row(number), partition=number % 2)
            assert _eventually(source.next) == [row(number)]
            time.sleep(0.3)
        with closing(output(broker.address, topic)) as sink:
            assert sink.open("p1", SCHEMA) == -1
            sink.write(1, changes((1, 1, "a")))
            assert sink.open("p1", SCHEMA) == 1


def test_lag_and_offsets_of_the_group(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, *(row(i) for i in range(5)))
    group = f"watch-{topic}"
    source = Source(kafka, topic, **{"group.id": group})
    source.input.poll(3)
    assert source.input.stats() == {
        "partitions": {f"{topic}[0]": {"next": 3, "end": 5, "lag": 2}},
        "lag": 2,
    }
    source.input.acknowledge(source.input.position)
    source.input.close()
    watcher = Consumer({"bootstrap.servers": kafka.address, "group.id": group})
    try:
        [place] = watcher.committed([TopicPartition(topic, 0)], timeout=10)
        assert place.offset == 3
    finally:
        watcher.close()


# -- formats ---------------------------------------------------------------------------------------


def test_bad_messages_are_put_aside_with_their_offset(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, row(1), b"nonsense", row(2), b"", {"id": "x"}, None, row(3), b"\xff")
    source = Source(kafka, topic)
    assert [found["id"] for found in source.next()] == [1, 2, 3]
    assert sorted(bad.position for bad in source.bad) == [f"{topic}[0], offset {n}" for n in (1, 3, 4, 5, 7)]
    reasons = {bad.position[-1]: bad.reason for bad in source.bad}
    assert "is not JSON" in reasons["1"]
    assert "has no value" in reasons["5"]
    assert "column 'id'" in reasons["4"]
    assert "is not UTF-8" in reasons["7"]


def test_json_may_span_lines(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, b'{\n "id": 1,\n "name": "a\\nb"\n}\n', row(2), b'{"id": 3} {"id": 4}')
    source = Source(kafka, topic)
    assert source.next() == [row(1, "a\nb"), row(2)]
    assert [bad.position for bad in source.bad] == [f"{topic}[0], offset 2"]


def test_insert_delete_and_arrays(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, {"insert": row(1)}, {"delete": row(2)})
    config = {"name": "json", "config": {"update_format": "insert_delete"}}
    assert Source(kafka, topic, format=config).next() == [row(1), {**row(2), "_op": -1}]
    topic = kafka.create()
    send(producer, topic, [row(1), row(2)], [row(3)])
    config = {"name": "json", "config": {"array": True}}
    assert Source(kafka, topic, format=config).next() == [row(1), row(2), row(3)]


def test_debezium(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(
        producer,
        topic,
        {"payload": {"op": "c", "after": row(1, "a")}},
        {"payload": {"op": "u", "before": row(1, "a"), "after": row(1, "b")}},
        {"payload": {"op": "d", "before": row(1, "b")}},
        None,  # a tombstone, which follows a deletion
        {"payload": {"op": "r", "after": row(2, "c")}},
    )
    columns = "id BIGINT PRIMARY KEY, name STRING, at BIGINT DEFAULT CONNECTOR_METADATA()['kafka_offset']"
    config = {"name": "json", "config": {"update_format": "debezium"}}
    source = Source(kafka, topic, columns, config, include_offset=True)
    found = source.rows(source.input.poll(100))
    assert [(r["id"], r["name"], r["_op"], r["at"]) for r in found] == [
        (1, "a", 1, 0),
        (1, None, -1, 1),
        (1, "b", 1, 1),
        (1, None, -1, 2),
        (2, "c", 1, 4),
    ]
    assert source.bad == []


def test_csv(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, b"1,a\n", b'2,"x\ny"\r\n', b"x,y", b"3,c", b"", b'4,"a"\n5,b\n')
    source = Source(kafka, topic, format={"name": "csv"})
    assert source.next() == [row(1, "a"), row(2, "x\ny"), row(3, "c"), row(4, "a"), row(5, "b")]
    assert sorted(bad.position for bad in source.bad) == [f"{topic}[0], offset 2", f"{topic}[0], offset 4"]


def test_a_bad_csv_message_takes_no_other_with_it(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, b"1,a", b'7,"abc', b'2,"b"', b"3,c", b"4,x\ry", b'5,"d""e"')
    source = Source(kafka, topic, format={"name": "csv"})
    ids = [found["id"] for found in source.next()]
    assert [id_ for id_ in ids if id_ != 4] == [1, 2, 3, 5]
    assert f"{topic}[0], offset 1" in [bad.position for bad in source.bad]
    topic = kafka.create()
    for key, value in enumerate((b"1,a", b'7,"abc', b'2,"b"', b"3,c", b"8,x\n9,y")):
        send(producer, topic, value, key=str(key).encode())
    send(producer, topic, b"4,d", key=b'"4')
    send(producer, topic, b"5,e", key=b"5")
    columns = "id BIGINT PRIMARY KEY, n BIGINT, name STRING"
    source = Source(kafka, topic, columns, {"name": "csv"}, envelope="upsert")
    found = source.rows(source.input.poll(100))
    assert [(r["id"], r["n"], r["name"], r["_op"]) for r in found] == [
        (0, 1, "a", 1),
        (1, None, None, -1),
        (2, 2, "b", 1),
        (3, 3, "c", 1),
        (4, None, None, -1),
        (5, 5, "e", 1),
    ]
    assert ["quote" in (r["_error"] or "") for r in found] == [False, True, False, False, False, False]
    assert "has 2 records" in found[4]["_error"]


def test_json_keys_that_stand_alone_are_one_value(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    for key in (b"1", b'5,"id":7', b'{"id": 2}', b"[3]", b"null"):
        send(producer, topic, {"name": "x"}, key=key)
    send(producer, topic, b"bad", key=b"bad")
    send(producer, topic, b'{"name": "a\nb"}', key=b"9")
    columns = "id BIGINT PRIMARY KEY, name STRING"
    source = Source(kafka, topic, columns, envelope="upsert")
    found = source.rows(source.input.poll(100))
    assert [(r["id"], r["name"]) for r in found] == [(1, "x"), (2, "x"), (9, None)]
    assert "is not JSON" in found[2]["_error"]
    positions = [bad.position for bad in source.bad]
    assert sorted(positions) == [f"{topic}[0], offset {n}" for n in (1, 3, 4, 5, 6)], "each is told once"


def test_raw_text_and_bytes(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, b"one\ntwo\n", b"\xff")
    source = Source(kafka, topic, "line STRING", {"name": "raw"})
    assert source.next() == [{"line": "one\ntwo\n"}]
    assert len(source.bad) == 1
    source = Source(kafka, topic, "data BINARY", {"name": "raw"})
    assert source.next() == [{"data": b"one\ntwo\n"}, {"data": b"\xff"}]
    lines = {"name": "raw", "config": {"mode": "lines", "column_name": "LINE"}}
    columns = "n BIGINT DEFAULT CONNECTOR_METADATA()['kafka_offset'], line STRING"
    source = Source(kafka, topic, columns, lines, include_offset=True)
    assert source.next() == [{"n": 0, "line": "one"}, {"n": 0, "line": "two"}]


AVRO = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


def encoded(record: Any, schema: Any = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def test_avro_with_its_schema_in_the_program(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create()
    send(producer, topic, encoded(row(1, "a")), b"\x02", encoded(row(2)))
    config = {"name": "avro", "config": {"schema": json.dumps(AVRO), "skip_schema_id": True}}
    source = Source(kafka, topic, format=config)
    assert source.next() == [row(1, "a"), row(2)]
    assert [bad.position for bad in source.bad] == [f"{topic}[0], offset 1"]
    topic = kafka.create()
    send(producer, topic, b"\0\0\0\0\x07" + encoded(row(1, "a")), b"\1")
    source = Source(kafka, topic, format={"name": "avro", "config": {"schema": json.dumps(AVRO)}})
    assert source.next() == [row(1, "a")]
    assert "the id of a schema" in source.bad[0].reason


def test_avro_from_and_to_a_registry(
    kafka: Kafka, registry: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `kafka_output` writes is what `kafka_input` reads."""
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    topic = kafka.create()
    config = {
        "registry_urls": [registry[1]],
        "registry_username": "me",
        "registry_password": "${env:REGISTRY_PASSWORD}",
    }
    sink = output(kafka.address, topic, {**config, "unique_keys": ["id"]}, "avro")
    sink.open("owner", SCHEMA)
    sink.write(1, changes((1, 1, "a"), (1, 2, "b")))
    sink.write(2, changes((-1, 1, "a"), (-1, 2, "b"), (1, 2, "c")))
    sink.close()
    columns = "id BIGINT PRIMARY KEY, name STRING"
    source = Source(kafka, topic, columns, {"name": "avro", "config": config}, envelope="upsert")
    found = [(r["id"], r["name"], r["_op"], r["_error"]) for r in source.rows(source.input.poll(100))]
    assert sorted(found[:2]) == [(1, "a", 1, None), (2, "b", 1, None)]
    assert sorted(found[2:]) == [(1, None, -1, None), (2, "c", 1, None)]


def test_a_schema_that_the_registry_does_not_have(
    kafka: Kafka, producer: Producer, registry: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create()
    messages = [bytes([0, 0, 0, 0, id_]) + encoded(row(1)) for id_ in (1, 99)]
    send(producer, topic, *messages)
    source = Source(kafka, topic, format={"name": "avro", "config": {"registry_urls": [registry[1]]}})
    splits = source.input.poll(10)
    for _ in range(2):
        with pytest.raises(UnreachableError, match=r"Schema not found.*; if that lasts"):
            source.rows(splits)
    registry[0].schemas.append(json.dumps(AVRO))  # servers of a registry may know it one after the other
    monkeypatch.setattr(schema_registry, "MISSING_SECONDS", 0.0)
    assert [_compared(found) for found in source.rows(splits)] == [row(1)]
    assert [bad.position for bad in source.bad] == [f"{topic}[0], offset 1"]
    assert "its schema cannot be had" in source.bad[0].reason
    registry[0].broken = True
    fresh = {"registry_urls": [registry[1]], "registry_timeout_secs": 4}
    source = Source(kafka, topic, format={"name": "avro", "config": fresh})
    with pytest.raises(UnreachableError, match="not now"):
        source.next()
    registry[0].broken, registry[0].refuses = False, True
    source = Source(kafka, topic, format={"name": "avro", "config": {**fresh, "registry_timeout_secs": 5}})
    with pytest.raises(ConnectorError, match=r"HTTP 401: who are you\?"):  # no message is at fault for that
        source.next()
    assert source.bad == []


# -- metadata --------------------------------------------------------------------------------------


def test_metadata_columns(kafka: Kafka, producer: Producer) -> None:
    topic = kafka.create(partitions=2)
    send(
        producer,
        topic,
        row(1),
        partition=1,
        timestamp=EARLIER + 123,
        headers=[("a", b"1"), ("a", b"2"), ("b", None)],
    )
    send(producer, topic, b"nonsense", partition=1)
    send(producer, topic, row(2), partition=1, timestamp=EARLIER)
    columns = """id BIGINT, t STRING DEFAULT CONNECTOR_METADATA()['kafka_topic'],
        p INT DEFAULT CAST(CONNECTOR_METADATA()['kafka_partition'] AS INT),
        o BIGINT DEFAULT cast(connector_metadata()['kafka_offset'] as bigint),
        at TIMESTAMP DEFAULT CONNECTOR_METADATA()['kafka_timestamp'],
        h MAP<STRING, STRING> DEFAULT CONNECTOR_METADATA()['kafka_headers']"""
    flags = {f"include_{name}": True for name in ("topic", "partition", "offset", "timestamp", "headers")}
    found = Source(kafka, topic, columns, **flags).next()
    assert [(r["id"], r["t"], r["p"], r["o"]) for r in found] == [(1, topic, 1, 0), (2, topic, 1, 2)]
    assert found[0]["at"] == dt.datetime.fromtimestamp(EARLIER // 1000, dt.UTC) + dt.timedelta(
        microseconds=123_000
    )
    assert dict(found[0]["h"]) == {"a": "2", "b": None}
    assert dict(found[1]["h"]) == {}
    silent = Source(kafka, topic, columns).next()
    assert {silent[0][name] for name in "tpo"} == {None}


def test_a_time_that_no_year_has() -> None:
    message = Mock(timestamp=lambda: (1, 1 << 60))  # brokers take it if a topic allows for it
    assert _timestamp(message, False) is None


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"topic": None}, "expected one of 'topic'"),
        ({"bootstrap.servers": None}, "the field 'bootstrap.servers' is missing"),
        ({"start_from": "begin"}, "start_from: expected 'earliest', 'latest'"),
        ({"start_from": {"offsets": ["a"]}}, "start_from: expected"),
        ({"fetch.min.byte": "1"}, 'No such configuration property: "fetch.min.byte"'),
        ({"auto.offset.reset": "latest"}, "auto.offset.reset: cannot be set: use start_from"),
        ({"plugin.library.paths": "evil.so"}, "plugin.library.paths: cannot be set"),
        ({"ssl.providers": "evil.so"}, "ssl.providers: cannot be set"),
        ({"sasl.kerberos.principal": "x"}, "sasl.kerberos.principal: cannot be set"),
        ({"isolation.level": "read"}, "isolation.level: expected read_committed or read_uncommitted"),
        ({"error_cb": "z"}, "cannot make a consumer"),
        ({"start_from": {"offsets": [-1]}}, "start_from: expected"),
        ({"ssl.key.pem": "x"}, "ssl.key.pem: a secret must not stand in a program"),
        ({"sasl.password": "hunter2"}, "sasl.password: a secret must not stand in a program"),
        ({"partitions": ["a"]}, "partitions: expected a list of numbers"),
        ({"envelope": "upsert"}, "'upsert' needs a table with a PRIMARY KEY"),
        ({"key_format": {"name": "json"}}, "key_format: only with 'envelope'"),
        ({"region": "x"}, "region: IAM of AWS is not supported"),
        ({"fetch.min.bytes": [1]}, "fetch.min.bytes: expected a string"),
    ],
)
def test_wrong_configurations_are_named(kafka: Kafka, config: dict[str, Any], message: str) -> None:
    settings = {"topic": "t", "bootstrap.servers": kafka.address, **config}
    given = {name: value for name, value in settings.items() if value is not None}
    entry = {"name": "k", "transport": {"name": "kafka_input", "config": given}, "format": JSON}
    table = parse_program(f"CREATE TABLE t (id INT) WITH ('connectors' = '{json.dumps([entry])}')").tables[0]
    with pytest.raises(ConnectorError, match="connector k") as caught:
        create_input(table.connectors[0], table)
    assert message in str(caught.value)


def test_a_topic_that_is_not_there(kafka: Kafka) -> None:
    with pytest.raises(ConnectorError, match=r"there is no topic nowhere in Kafka at .*; create it"):
        Source(kafka, "nowhere").input.poll(10)


def test_offsets_for_other_partitions_than_there_are(kafka: Kafka) -> None:
    topic = kafka.create(partitions=2)
    with pytest.raises(ConnectorError, match="1 offsets are given for 2 partitions"):
        Source(kafka, topic, start_from={"offsets": [0]}).input.poll(10)
    with pytest.raises(ConnectorError, match="ends at offset 0, which is before 7"):
        Source(kafka, topic, start_from={"offsets": [0, 7]}).input.poll(10)
    with pytest.raises(ConnectorError, match="has no partition 5"):
        Source(kafka, topic, partitions=[5]).input.poll(10)


def test_raw_messages_need_a_column(kafka: Kafka) -> None:
    with pytest.raises(ConnectorError, match="say with 'column_name' which of them"):
        Source(kafka, "t", format={"name": "raw"})
    with pytest.raises(
        ConnectorError, match="raw messages are STRING or BINARY, and the column id is BIGINT"
    ):
        Source(kafka, "t", format={"name": "raw", "config": {"column_name": "id"}})


def test_a_metadata_column_of_another_type(kafka: Kafka) -> None:
    columns = "id BIGINT, o STRING DEFAULT CONNECTOR_METADATA()['kafka_offset']"
    with pytest.raises(ConnectorError, match="include_offset: the column o is STRING; expected BIGINT"):
        Source(kafka, "t", columns, include_offset=True)
    with pytest.raises(ConnectorError, match="the column o asks for 'kafka_offest'; Kafka has kafka_topic"):
        Source(kafka, "t", columns.replace("offset", "offest"))
