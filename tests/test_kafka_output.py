"""kafka_output: one transaction of the pipeline is one Kafka transaction, on a real broker."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Output, create_output
from penstock.connectors import kafka as shared
from penstock.connectors.config import Section
from penstock.connectors.interface import NOTHING
from penstock.connectors.output import kafka as connector
from penstock.connectors.output import kafka_tail
from penstock.connectors.output.encode import to_json
from penstock.connectors.output.kafka_avro import AvroEncoder
from penstock.connectors.output.kafka_json import json_objects
from penstock.connectors.schema_registry import SchemaRegistry
from penstock.errors import ConnectorError, UnreachableError
from penstock.sql import Connector, parse_program
from tests.kafka import Kafka, started
from tests.oracle.history import seed_of_run
from tests.servers import free_port

pytestmark = pytest.mark.xdist_group("kafka")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
VIEW = parse_program("CREATE TABLE t (id BIGINT, name STRING); CREATE VIEW v AS SELECT * FROM t").views[0]
KEYED = {"update_format": "raw", "unique_keys": ["id"]}


def output(
    address: str, topic: str, form: dict[str, Any] | None = None, kind: str = "json", **config: Any
) -> Output:
    config = {"bootstrap.servers": address, "topic": topic, **config}
    entry = {
        "transport": {"name": "kafka_output", "config": config},
        "format": {"name": kind, "config": form or {}},
    }
    return create_output(Connector("out", entry), VIEW)


def changes(*rows: tuple[int, Any, Any]) -> pa.Table:
    """Rows as (weight, id, name)."""
    columns = list(zip(*rows, strict=True))[1:]
    return weighted([row[0] for row in rows], pa.table([pa.array(c) for c in columns], schema=SCHEMA))


def weighted(weights: list[int], rows: pa.Table) -> pa.Table:
    kinds = pa.array(["insert" if weight > 0 else "delete" for weight in weights], pa.string())
    absolute = pa.array([abs(weight) for weight in weights], pa.int64())
    return rows.append_column("_change_type", kinds).append_column("_weight", absolute)


def read(address: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All messages, by partition, as a consumer sees them that knows nothing of Penstock."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
    )
    partitions = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[Any] = []
    ends = 0
    deadline = time.monotonic() + 240
    while ends < len(partitions):
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        for one in [] if message is None else [message, *consumer.consume(10_000, 0)]:
            if one.error() is None:
                found.append(one)
            elif one.error().code() == KafkaError._PARTITION_EOF:
                ends += 1
    consumer.close()
    return sorted(found, key=lambda one: (one.partition(), one.offset()))


def values(address: str, topic: str) -> list[Any]:
    return [None if m.value() is None else json.loads(m.value()) for m in read(address, topic)]


def numbers(address: str, topic: str) -> list[int]:
    """The transactions of Penstock's messages, in their order."""
    found = (dict(message.headers() or ()).get("penstock-transaction") for message in read(address, topic))
    return [int(number) for number in found if number is not None]


def other(address: str, **more: Any) -> Producer:
    """A producer of somebody else."""
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": f"other-{uuid.uuid4().hex}", **more}
    )
    producer.init_transactions(10)
    return producer


def send(producer: Producer, topic: str, *texts: str, partition: int = 0, commit: bool = True) -> None:
    producer.begin_transaction()
    for text in texts:
        producer.produce(topic, text.encode(), partition=partition)
    assert producer.flush(10) == 0
    if commit:
        producer.commit_transaction(10)
    else:
        producer.abort_transaction(10)


# -- messages -------------------------------------------------------------------------------------


def test_each_change_is_a_message_with_its_transaction(kafka: Kafka) -> None:
    topic = kafka.create()
    headers = [{"key": "from", "value": "shop"}, {"key": "raw", "value": [0, 255]}, {"key": "none"}]
    with closing(output(kafka.address, topic, headers=headers)) as sink:
        assert sink.open("p1", SCHEMA) == NOTHING
        sink.write(0, changes((1, 1, 'a "b" %s'), (2, 2, None)))
        sink.write(4, changes((1, 3, "c"), (-1, 2, None)))
    messages = read(kafka.address, topic)
    assert [json.loads(message.value()) for message in messages] == [
        {"insert": {"id": 1, "name": 'a "b" %s'}},
        {"insert": {"id": 2, "name": None}},
        {"insert": {"id": 2, "name": None}},
        {"delete": {"id": 2, "name": None}},
        {"insert": {"id": 3, "name": "c"}},
    ]
    assert {message.key() for message in messages} == {None}
    assert messages[-1].headers() == [
        ("penstock-transaction", b"4"),
        ("penstock-owner", b"p1/out"),
        ("from", b"shop"),
        ("raw", b"\x00\xff"),
        ("none", None),
    ]


def test_a_transaction_is_seen_as_a_whole(kafka: Kafka) -> None:
    topic = kafka.create(partitions=3)
    with closing(output(kafka.address, topic, {"unique_keys": ["id"]})) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes(*((1, n, "a") for n in range(100))))
        sink.write(1, changes(*((1, n, "b") for n in range(100, 200))))
    assert len(numbers(kafka.address, topic)) == 200
    # A marker ends each of the two in every partition that it touched: no more transactions than that.
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "test"})
    last = sum(consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(3))
    consumer.close()
    assert last == 200 + 2 * 3


def test_the_row_under_its_key(kafka: Kafka) -> None:
    topic = kafka.create(partitions=4)
    with closing(output(kafka.address, topic, KEYED)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a"), (1, 2, "b"), (1, None, "c")))
        sink.write(1, changes((1, 1, "A"), (-1, 1, "a"), (-1, 2, "b")))
    messages = read(kafka.address, topic)
    state: dict[bytes, Any] = {}
    for message in sorted(messages, key=lambda m: int(dict(m.headers())["penstock-transaction"])):
        state[message.key()] = message.value()
    assert state == {
        b'{"id":1}': b'{"id":1,"name":"A"}',
        b'{"id":2}': None,
        b'{"id":null}': b'{"id":null,"name":"c"}',
    }
    assert len(messages) == 5
    assert len({(m.key(), m.partition()) for m in messages}) == 3


def test_debezium_with_and_without_keys(kafka: Kafka) -> None:
    def said(form: dict[str, Any]) -> list[Any]:
        topic = kafka.create()
        with closing(output(kafka.address, topic, {"update_format": "debezium", **form})) as sink:
            sink.open("p1", SCHEMA)
            sink.write(3, changes((1, 1, "A"), (-1, 1, "a"), (-1, 2, "b"), (1, 3, "c")))
        payloads = [value["payload"] for value in values(kafka.address, topic)]
        return [(p["op"], *(row and row["name"] for row in (p["before"], p["after"]))) for p in payloads]

    assert said({"key_fields": ["ID"]}) == [("d", "b", None), ("u", "a", "A"), ("c", None, "c")]
    assert said({}) == [("d", "a", None), ("d", "b", None), ("c", None, "A"), ("c", None, "c")]


TYPES = """CREATE TABLE t (
  i INT, b BOOLEAN, s STRING, d DECIMAL(20, 10), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, f DOUBLE,
  x BINARY, l ARRAY<INT>, o STRUCT<a: INT, `b%`: STRING>
)"""
ROWS: list[dict[str, Any]] = [
    {
        "i": -1,
        "b": True,
        "s": "\u00e4\u2028\n\"'\\%d\U0001f600",
        "d": Decimal("0.0000000001"),
        "day": dt.date(1, 1, 1),
        "at": dt.datetime(2024, 1, 2, 3, 4, 5, 600, dt.UTC),
        "local": dt.datetime(1969, 12, 31, 23, 59, 59),
        "f": 1e300,
        "x": b"\x00\xff",
        "l": [1, None],
        "o": {"a": 1, "b%": None},
    },
    dict.fromkeys(["i", "b", "s", "d", "day", "at", "local", "f", "x", "l", "o"]),
    {
        "i": 2**31 - 1,
        "b": False,
        "s": "",
        "d": Decimal("-1234567890.1"),
        "day": dt.date(9999, 12, 31),
        "at": dt.datetime(1600, 1, 1, tzinfo=dt.UTC),
        "local": dt.datetime(2024, 1, 1, 0, 0, 0, 999999),
        "f": float("nan"),
        "x": b"",
        "l": [],
        "o": {"a": None, "b%": "%s"},
    },
]


def test_values_are_those_of_a_file() -> None:
    table = pa.Table.from_pylist(ROWS, to_arrow_schema(parse_program(TYPES).tables[0].schema, timezone="UTC"))
    assert [json.loads(text) for text in json_objects(table)] == [to_json(row) for row in table.to_pylist()]


# -- Avro -----------------------------------------------------------------------------------------


class _Registry(BaseHTTPRequestHandler):
    """The two questions that a schema registry is asked here."""

    schemas: list[str]
    subjects: dict[str, list[int]]
    asked: list[tuple[str, str | None, str | None]]
    broken = False
    refuses = False

    def do_GET(self) -> None:
        number = int(self.path.rsplit("/", 1)[1])
        if number < len(self.schemas):
            self._answer(200, {"schema": self.schemas[number]})
        else:
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def do_POST(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        if text not in self.schemas:
            self.schemas.append(text)
        number = self.schemas.index(text)
        self.subjects.setdefault(self.path.split("/")[2], []).append(number)
        self._answer(200, {"id": number})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        type(self).asked.append((self.path, self.headers["Authorization"], self.headers["X-Team"]))
        if self.broken:
            status, body = 503, {"message": "not now"}
        if self.refuses:
            status, body = 401, {"message": "who are you?"}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def registry() -> Iterator[tuple[type[_Registry], str]]:
    class Handler(_Registry):
        schemas, subjects, asked = ["unused"], {}, []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield Handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def avro(data: bytes, schema: Any) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), schema, None)


def test_avro_under_its_key_with_a_registry(
    kafka: Kafka, registry: tuple[type[_Registry], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, url = registry
    topic = kafka.create()
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter22")
    form = {
        "unique_keys": ["id"],
        "registry_urls": [f"http://127.0.0.1:{free_port()}", url],
        "registry_username": "me",
        "registry_password": "${env:REGISTRY_PASSWORD}",
        "registry_headers": {"X-Team": "shop"},
    }
    with closing(output(kafka.address, topic, form, "avro")) as sink:
        handler.broken = True
        with pytest.raises(UnreachableError, match="HTTP 503: not now"):
            sink.open("p1", SCHEMA)
        handler.broken = False
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a"), (1, 2, None)))
        sink.write(1, changes((-1, 1, "a")))
    assert list(handler.subjects) == [f"{topic}-value", f"{topic}-key"]
    assert handler.asked[-1][1:] == ("Basic bWU6aHVudGVyMjI=", "shop")
    found = SchemaRegistry.of(Section("format", form))
    assert found is not None
    seen = []
    for message in read(kafka.address, topic):
        parts = []
        for data in (message.key(), message.value()):
            schema = None if data is None else found.schema(int.from_bytes(data[1:5], "big"))
            assert data is None or data[0] == 0
            parts.append(None if data is None else avro(data[5:], schema))
        seen.append(tuple(parts))
    assert seen == [
        ({"id": 1}, {"id": 1, "name": "a"}),
        ({"id": 2}, {"id": 2, "name": None}),
        ({"id": 1}, None),
    ]
    with pytest.raises(
        ConnectorError, match=r"cannot get the schema 99 .*HTTP 404: Schema not found"
    ) as caught:
        found.schema(99)
    assert not isinstance(caught.value, UnreachableError)


def test_avro_without_keys_says_in_a_header_what_became_of_the_row(kafka: Kafka) -> None:
    topic = kafka.create()
    schema = to_arrow_schema(parse_program(TYPES.replace("`b%`", "b")).tables[0].schema, timezone="UTC")
    rows = [{**row, "o": row["o"] and {"a": row["o"]["a"], "b": row["o"]["b%"]}, "f": 1.5} for row in ROWS]
    with closing(output(kafka.address, topic, {"skip_schema_id": True}, "avro")) as sink:
        sink.open("p1", schema)
        sink.write(0, weighted([1, -2, 1], pa.Table.from_pylist(rows, schema)))
        written = sink._encoder._row.schema  # type: ignore[attr-defined]
    messages = read(kafka.address, topic)
    found = [(dict(m.headers())["op"], avro(m.value(), written)) for m in messages]
    assert found == [
        *[(b"delete", rows[1])] * 2,
        (b"insert", {**rows[0], "d": Decimal("0.0000000001")}),
        (b"insert", {**rows[2], "d": Decimal("-1234567890.1000000000")}),
    ]


def test_avro_numbers_of_all_sizes() -> None:
    seed = seed_of_run()
    random_ = random.Random(seed)
    sizes = [2**n + d for n in range(63) for d in (-1, 0)] + [2**63 - 1]
    longs = [*sizes, *(-size - 1 for size in sizes), None]
    decimals = [Decimal(random_.randrange(-(10 ** (n + 1)), 10 ** (n + 1))).scaleb(-6) for n in range(27)]
    decimals += [Decimal("9" * 32 + ".999999"), Decimal("-" + "9" * 32 + ".999999")]
    rows = pa.table({"n": pa.array(longs, pa.int64())})
    schema = pa.schema([("n", pa.int64()), ("d", pa.decimal128(38, 6))])
    rows = rows.append_column("d", pa.array((decimals * 10)[: len(longs)], pa.decimal128(38, 6)))
    encoder = AvroEncoder("out", "t", "v")
    encoder.open(schema)
    assert encoder._row is not None
    data = encoder._row.write(rows)
    parsed = fastavro.parse_schema(encoder._row.schema)
    expected = rows.to_pylist()
    assert [avro(one, parsed) for one in data] == expected, f"seed {seed}"
    for row, one in zip(expected, data, strict=True):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        assert buffer.getvalue() == one, f"seed {seed}"


def test_a_given_avro_schema_is_checked_and_used(kafka: Kafka) -> None:
    def given(*fields: Any) -> dict[str, Any]:
        schema = {"type": "record", "name": "r", "namespace": "shop", "fields": list(fields)}
        return {"skip_schema_id": True, "schema": json.dumps(schema)}

    name, id_ = {"name": "name", "type": ["string", "null"]}, {"name": "id", "type": "long"}
    more = {"name": "more", "type": "int", "default": 7}
    topic = kafka.create()
    for form, said in (
        (given(id_), "no field for the column name"),
        (given(id_, name, {"name": "x", "type": "int"}), "the field 'x', which is no column of the view"),
        (
            given({"name": "id", "type": "string"}, name),
            "the field 'id' is string, and the column needs long",
        ),
    ):
        with pytest.raises(ConnectorError, match=said):
            output(kafka.address, topic, form, "avro").open("p1", SCHEMA)
    form = given(name, more, id_)
    with closing(output(kafka.address, topic, form, "avro")) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a")))
        with pytest.raises(ConnectorError, match="out, transaction 1: a row does not fit the Avro schema"):
            sink.write(1, changes((1, 2, "b"), (1, None, "c")))
    [message] = read(kafka.address, topic)
    assert avro(message.value(), json.loads(form["schema"])) == {"name": "a", "more": 7, "id": 1}


# -- what the topic has ---------------------------------------------------------------------------


def test_a_restart_goes_on_after_the_last_transaction(kafka: Kafka) -> None:
    topic = kafka.create()
    with closing(output(kafka.address, topic)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(3, changes((1, 1, "a")))
    with closing(output(kafka.address, topic)) as sink:
        assert sink.open("p1", SCHEMA) == 3
        sink.write(3, changes((1, 1, "not this")))
        sink.write(4, changes((1, 2, "b")))
        assert sink.open("p1", SCHEMA) == 4
    assert numbers(kafka.address, topic) == [3, 4]


def test_the_last_transaction_may_be_in_any_partition(kafka: Kafka) -> None:
    topic = kafka.create(partitions=5)
    seed = seed_of_run()
    random_ = random.Random(seed)
    noise = other(kafka.address)
    for number in range(6):
        with closing(output(kafka.address, topic, KEYED)) as sink:
            assert sink.open("p1", SCHEMA) == number - 1, f"seed {seed}"
            sink.write(number, changes((1, random_.randrange(1000), "a")))
        for _ in range(3):
            partition, commit = random_.randrange(5), random_.random() < 0.5
            send(noise, topic, "x", "y", partition=partition, commit=commit)


def test_messages_of_others_lie_behind_it(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_tail, "_FIRST_WINDOW", 10)
    topic = kafka.create(partitions=2)
    with closing(output(kafka.address, topic)) as sink, closing(output(kafka.address, topic)) as second:
        sink.open("p1", SCHEMA)
        sink.write(7, changes((1, 1, "a")))
        assert second.open("p2", SCHEMA) == NOTHING  # a topic may be shared
        second.write(99, changes((1, 1, "a")))
        noise = other(kafka.address)
        send(noise, topic, *map(str, range(500)))
        send(noise, topic, *map(str, range(2_000)), commit=False)
        send(noise, topic, *map(str, range(300)), partition=1)
        assert sink.open("p1", SCHEMA) == 7
        assert second.open("p2", SCHEMA) == 99


def test_a_compacted_topic_has_gaps(kafka: Kafka) -> None:
    topic = kafka.create(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01)
    with closing(output(kafka.address, topic, KEYED)) as sink:
        sink.open("p1", SCHEMA)
        for number in range(10):
            sink.write(number, changes((1, 1, str(number)), *([(-1, 1, str(number - 1))] if number else [])))
        time.sleep(0.3)
        sink.write(10, changes((1, 2, "b")))
        deadline = time.monotonic() + 240
        while len(numbers(kafka.address, topic)) > 3:
            assert time.monotonic() < deadline, "the topic is not compacted"
            time.sleep(0.3)
        assert sink.open("p1", SCHEMA) == 10
        assert "were compacted away" in (sink.forgot or "")


def test_what_retention_took_away_is_not_written_again(kafka: Kafka) -> None:
    topic = kafka.create()
    with closing(output(kafka.address, topic)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(5, changes((1, 1, "a")))
        [deleted] = kafka.admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values()
        deleted.result(10)
        sink.close()  # as after an error
        sink.write(5, changes((1, 1, "a")))
        assert numbers(kafka.address, topic) == []
        assert sink.open("p1", SCHEMA) == NOTHING
        sink.write(6, changes((1, 2, "b")))
    assert numbers(kafka.address, topic) == [6]


def test_a_transaction_that_is_open_is_waited_for(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_tail, "_OPEN_SECONDS", 0.5)
    topic = kafka.create(partitions=2)
    with closing(output(kafka.address, topic)) as sink:
        sink.open("p1", SCHEMA)
        noise = other(kafka.address)
        noise.begin_transaction()
        noise.produce(topic, b"x", partition=1)
        noise.flush(10)
        sink.write(0, changes(*((1, n, "a") for n in range(10))))
    with closing(output(kafka.address, topic)) as sink:
        with pytest.raises(UnreachableError, match=rf"of another producer is open on {topic}\[1\]"):
            sink.open("p1", SCHEMA)
        noise.commit_transaction(10)
        assert sink.open("p1", SCHEMA) == 0


def test_a_topic_where_some_transaction_is_always_open(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_tail, "_OPEN_SECONDS", 0.5)
    topic = kafka.create()
    first, second = other(kafka.address), other(kafka.address)
    with closing(output(kafka.address, topic)) as sink:
        first.begin_transaction()
        first.produce(topic, b"x")
        first.flush(10)
        with pytest.raises(UnreachableError, match="of another producer is open"):
            sink.open("p1", SCHEMA)
        second.begin_transaction()
        second.produce(topic, b"y")
        second.flush(10)
        first.commit_transaction(10)
        assert sink.open("p1", SCHEMA) == NOTHING
        second.abort_transaction(10)


def test_what_could_not_be_aborted_is_not_waited_for(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.create()

    def fails(*_: object) -> None:
        raise UnreachableError("gone")

    with closing(output(kafka.address, topic)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a")))
        with monkeypatch.context() as patch:
            patch.setattr(connector._Producer, "_abort", lambda _: None)
            patch.setattr(connector, "failpoint", fails)
            with pytest.raises(UnreachableError, match="gone"):
                sink.write(1, changes((1, 2, "b")))
        assert len(read(kafka.address, topic, "read_uncommitted")) == 2
        sink.write(1, changes((1, 2, "b")))
    assert numbers(kafka.address, topic) == [0, 1]


# -- what goes wrong ------------------------------------------------------------------------------

_UNFINISHED = """
import sys, time
from confluent_kafka import Producer
address, topic, name = sys.argv[1:]
producer = Producer({"bootstrap.servers": address, "transactional.id": name})
producer.init_transactions(10)
producer.begin_transaction()
for n in range(100):
    producer.produce(topic, b"half", headers={"penstock-transaction": b"1", "penstock-owner": b"p1/out"})
producer.flush(10)
print("there", flush=True)
time.sleep(60)
"""


def test_what_a_killed_run_left_unfinished_is_taken_away(kafka: Kafka) -> None:
    topic = kafka.create(partitions=2)
    with closing(output(kafka.address, topic)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a")))
    process = subprocess.Popen(
        [sys.executable, "-c", _UNFINISHED, kafka.address, topic, "penstock-p1-out"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"there\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(read(kafka.address, topic, "read_uncommitted")) == 101
    with closing(output(kafka.address, topic)) as sink:
        assert sink.open("p1", SCHEMA) == 0
        sink.write(1, changes((1, 2, "b")))
    assert numbers(kafka.address, topic) in ([0, 1], [1, 0])


def test_an_earlier_run_is_turned_away(kafka: Kafka) -> None:
    topic = kafka.create()
    with closing(output(kafka.address, topic)) as zombie, closing(output(kafka.address, topic)) as sink:
        zombie.open("p1", SCHEMA)
        zombie.write(0, changes((1, 1, "a")))
        assert sink.open("p1", SCHEMA) == 0
        with pytest.raises(ConnectorError, match="another run of this pipeline, or of a copy") as caught:
            zombie.write(1, changes(*((1, n, "zombie") for n in range(10_000))))
        assert not isinstance(caught.value, UnreachableError)
        sink.write(1, changes((1, 2, "b")))
    assert numbers(kafka.address, topic) == [0, 1]


def test_a_transaction_that_takes_too_long_is_tried_again(kafka: Kafka) -> None:
    topic = kafka.create()
    config = {"transaction.timeout.ms": 1_000}
    with closing(output(kafka.address, topic, **config)) as sink:
        sink.open("p1", SCHEMA)
        messages = sink._encoder.messages  # type: ignore[attr-defined]

        def slow(*arguments: Any) -> Iterator[Any]:
            for count, message in enumerate(messages(*arguments)):
                time.sleep(2.5 * count)
                yield message

        sink._encoder.messages = slow  # type: ignore[attr-defined]
        with pytest.raises(UnreachableError, match=r"not finished within 1 s.*transaction.timeout.ms"):
            sink.write(0, changes((1, 1, "a"), (1, 2, "b")))
        sink._encoder.messages = messages  # type: ignore[attr-defined]
        sink.write(0, changes((1, 1, "a"), (1, 2, "b")))
    assert numbers(kafka.address, topic) == [0, 0]


def test_a_message_that_is_too_large_is_final(kafka: Kafka) -> None:
    topic = kafka.create(max_message_bytes=2_000)
    with closing(output(kafka.address, topic)) as sink:
        sink.open("p1", SCHEMA)
        for size in (5_000, 2_000_000):  # too large for the topic, and for the producer
            with pytest.raises(
                ConnectorError, match=r"out: cannot write transaction 0 .*too large"
            ) as caught:
                sink.write(0, changes((1, 1, "a"), (1, 2, "b" * size)))
            assert not isinstance(caught.value, UnreachableError)
        sink.write(1, changes((1, 3, "c")))
        assert sink.open("p1", SCHEMA) == 1
    assert numbers(kafka.address, topic) == [1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changes((1, 1, "a"), (1, 1, "b")), "out, transaction 0: the view has several rows with id = 1"),
        (changes((2, 1, "a")), "the view has several rows with id = 1"),
    ],
)
def test_rows_that_share_a_key_are_refused(kafka: Kafka, change: pa.Table, said: str) -> None:
    topic = kafka.create()
    with closing(output(kafka.address, topic, KEYED)) as sink:
        sink.open("p1", SCHEMA)
        with pytest.raises(ConnectorError, match=said):
            sink.write(0, change)
        sink.write(1, changes((1, 9, "x")))
    assert numbers(kafka.address, topic) == [1]


def test_there_must_be_a_topic(kafka: Kafka) -> None:
    with closing(output(kafka.address, "nowhere")) as sink:
        with pytest.raises(
            ConnectorError, match=r"connector out: there is no topic nowhere .*create it"
        ) as caught:
            sink.open("p1", SCHEMA)
        assert not isinstance(caught.value, UnreachableError)


def test_a_run_that_was_overtaken_does_not_take_over_again(kafka: Kafka) -> None:
    topic = kafka.create()
    with closing(output(kafka.address, topic)) as old, closing(output(kafka.address, topic)) as new:
        old.open("p1", SCHEMA)
        old.write(1, changes((1, 1, "a")))
        assert new.open("p1", SCHEMA) == 1
        new.write(2, changes((1, 2, "b")))
        new.write(3, changes((1, 3, "c")))
        old.close()  # as after any failure: the next call makes a new producer
        with pytest.raises(ConnectorError, match="has transaction 3, which this run did not write"):
            old.write(2, changes((1, 2, "b")))
        new.write(4, changes((1, 4, "d")))  # nobody turned it away
    assert numbers(kafka.address, topic) == [1, 2, 3, 4]


def test_headers_that_somebody_copied(kafka: Kafka) -> None:
    topic = kafka.create()
    with closing(output(kafka.address, topic)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(1, changes((1, 1, "a")))
        producer = kafka.producer()
        for headers in (
            [("penstock-owner", b"p1/out")],
            [("penstock-owner", b"p1/out"), ("penstock-transaction", b"x")],
        ):
            producer.produce(topic, b"{}", headers=headers)
        producer.flush()
        assert sink.open("p1", SCHEMA) == 1


def test_a_large_transaction(kafka: Kafka) -> None:
    topic = kafka.create(partitions=3)
    count = 200_000
    rows = pa.table([pa.array(range(count)), pa.array(["some text"] * count)], schema=SCHEMA)
    config = {"queue.buffering.max.messages": 20_000}
    with closing(output(kafka.address, topic, **config)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, weighted([1] * count, rows))
        assert sink.open("p1", SCHEMA) == 0
    ids = [json.loads(message.value())["insert"]["id"] for message in read(kafka.address, topic)]
    assert sorted(ids) == list(range(count))


@pytest.mark.slow
def test_a_broker_that_is_killed_hung_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "STALL_SECONDS", 2.0)
    monkeypatch.setattr(connector, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(connector, "_ABORT_SECONDS", 0.5)
    monkeypatch.setattr(shared, "TIMEOUT_SECONDS", 2.0)
    with started() as broker:
        topic = broker.create(partitions=2)
        with closing(output(broker.address, topic)) as sink:
            sink.open("p1", SCHEMA)
            sink.write(0, changes((1, 1, "a")))

            broker.kill()  # between two transactions
            began = time.monotonic()
            with pytest.raises(UnreachableError, match="connector out: cannot write transaction 1"):
                sink.write(1, changes((1, 2, "b")))
            with pytest.raises(UnreachableError, match="connector out: cannot ask about the topic"):
                sink.write(1, changes((1, 2, "b")))
            assert time.monotonic() - began < 15
            broker.start()
            until_taken(sink, 1, changes((1, 2, "b")))

            # In the middle of one.
            messages = sink._encoder.messages  # type: ignore[attr-defined]

            def killing(*arguments: Any) -> Iterator[Any]:
                for count, message in enumerate(messages(*arguments)):
                    if count == 50_000:
                        broker.kill()
                    yield message

            sink._encoder.messages = killing  # type: ignore[attr-defined]
            many = changes(*((1, n, "c") for n in range(60_000)))
            with pytest.raises(UnreachableError, match="connector out: cannot write transaction 2"):
                sink.write(2, many)
            sink._encoder.messages = messages  # type: ignore[attr-defined]
            broker.start()
            until_taken(sink, 2, many)

            # A commit whose outcome nobody knows: it comes through, and the answer does not.
            commit = connector._Producer._commit

            def unheard(self: Any, client: Producer) -> None:
                commit(self, client)
                raise_timeout()

            def unsent(self: Any, client: Producer) -> None:
                broker.pause()
                try:
                    commit(self, client)
                finally:
                    broker.resume()

            for number, hurt in ((3, unheard), (4, unsent)):
                with monkeypatch.context() as patch:
                    patch.setattr(connector._Producer, "_commit", hurt)
                    with pytest.raises(UnreachableError, match=r"[Tt]imed out"):
                        sink.write(number, changes((1, number, "d")))
                until_taken(sink, number, changes((1, number, "d")))
        found = numbers(broker.address, topic)
        assert {number: found.count(number) for number in found} == {0: 1, 1: 1, 2: 60_000, 3: 1, 4: 1}


def raise_timeout() -> None:
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out", False, True, False))


def until_taken(sink: Output, transaction: int, rows: pa.Table) -> None:
    """What the pipeline does about an output that cannot be reached."""
    deadline = time.monotonic() + 240
    while True:
        try:
            sink.write(transaction, rows)
            return
        except UnreachableError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


# -- the configuration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"linger": 5}, 'connector out: .*No such configuration property: "linger"'),
        ({"batch.size": "big"}, 'connector out: .*Invalid value for configuration property "batch.size"'),
        ({"transactional.id": "mine"}, "transactional.id: cannot be set: it is made of"),
        ({"acks": 1}, "config.acks: is always 'all'"),
        ({"enable.idempotence": False}, "enable.idempotence: is always 'true'"),
        ({"kafka_service": "s"}, "config.kafka_service: not supported"),
        ({"region": "eu-1"}, "config.region: not supported"),
        ({"log_level": "loud"}, "config.log_level: expected one of emerg"),
        ({"sasl.password": "hunter2"}, "a secret must not stand in a program"),
        ({"headers": [{"key": "penstock-owner"}]}, "'penstock-owner' is a header of Penstock's own"),
        (
            {"headers": [{"key": "a", "value": 1}]},
            r"headers\[0\].value: expected a string or a list of bytes",
        ),
        ({"fault_tolerance": {"producers": {}}}, "fault_tolerance: unknown field 'producers'"),
        (
            {"fault_tolerance": {"producer_options": {"acks": "0"}}},
            "fault_tolerance.producer_options.acks: is always 'all'",
        ),
        ({"fault_tolerance": {"consumer_options": {"x.y": "1"}}}, "connector out: .*No such .*x.y"),
    ],
)
def test_wrong_options_are_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError, match=said):
        output("localhost:1", "t", **config)


@pytest.mark.parametrize(
    ("kind", "form", "said"),
    [
        ("json", {"update_format": "raw"}, "set 'unique_keys' to a list of columns"),
        ("json", {"array": True}, "array: cannot be true: every change is a message of its own"),
        ("json", {"unique_keys": ["id", "ID"]}, "unique_keys: expected a list of different column names"),
        ("json", {"unique_keys": ["id"], "key_fields": ["id"]}, "key_fields: the same as 'unique_keys'"),
        ("json", {"update_format": "snowflake"}, "expected one of insert_delete, debezium, raw"),
        ("avro", {}, "set 'registry_urls'; for messages without it set 'skip_schema_id' to true"),
        ("avro", {"registry_proxy": "http://p"}, "registry_proxy: only together with 'registry_urls'"),
        ("avro", {"skip_schema_id": True, "schema": "{"}, "schema: not an Avro schema as JSON text"),
        (
            "avro",
            {"registry_urls": ["http://r"], "registry_authorization_token": "abc"},
            "registry_authorization_token: a secret must not stand in a program",
        ),
        ("csv", {}, "format.name: expected one of json, avro"),
    ],
)
def test_wrong_formats_are_refused(kind: str, form: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError, match=said):
        output("localhost:1", "t", form, kind)


@pytest.mark.parametrize(("key", "said"), [("nix", "no key column 'nix'"), ("f", "the type DOUBLE")])
def test_key_columns_must_be_there_and_comparable(key: str, said: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64())])
    with pytest.raises(ConnectorError, match=said):
        output("localhost:1", "t", {"unique_keys": [key]}).open("p1", schema)


def test_options_that_say_what_is_so_anyway() -> None:
    tolerance = {"producer_options": {"linger.ms": "1"}, "consumer_options": {"fetch.wait.max.ms": "10"}}
    config = {"acks": "-1", "enable.idempotence": True, "fault_tolerance": tolerance, "log_level": "error"}
    output("localhost:1", "t", **config, initialization_timeout_secs=10).close()
