"""`kafka_output`: the changes of a view as messages of a Kafka topic.

One transaction of the pipeline is one Kafka transaction, and each of its messages says which: a consumer
that reads what is committed sees all of it or nothing. The producer's transactional id stays the same over
restarts, so the broker takes away what an earlier run left unfinished, and turns that run away should it
still be there.

Whether a commit came through cannot always be told when a connection breaks. So after any failure there is a
new producer, which settles what the last one left, and the topic is asked what it has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.connectors.config import Section
from penstock.connectors.interface import NOTHING, Output
from penstock.connectors.kafka import TIMEOUT_SECONDS, Cluster, Topic, Topics, is_final, named
from penstock.connectors.output.kafka_avro import AvroEncoder
from penstock.connectors.output.kafka_json import JsonEncoder
from penstock.connectors.output.kafka_messages import Encoder, Message
from penstock.connectors.output.kafka_tail import (
    OWNER_HEADER,
    TRANSACTION_HEADER,
    ends_of,
    last_transaction,
    wait_for,
)
from penstock.connectors.output.keys import index_columns
from penstock.errors import ConnectorError, UnreachableError
from penstock.failpoints import failpoint

if TYPE_CHECKING:
    from penstock.sql import Connector, View

Headers: TypeAlias = list[tuple[str, bytes | None]]

STALL_SECONDS = 10.0
"""How long a broker may take no message, or leave a commit unanswered."""

_ABORT_SECONDS = 3.0
_POLL_EVERY = 4_096
"""Refused messages are looked for after so many."""

_TRANSACTION_TIMEOUT = "transaction.timeout.ms"
_DEFAULT_TIMEOUT_MS = 60_000

_FIELDS = ("topic", "headers", "fault_tolerance", "initialization_timeout_secs", "log_level")
_REFUSED = {
    "kafka_service": "there are no services here; give the options themselves",
    "region": "signing in with AWS IAM is not supported; use SASL/SCRAM or TLS",
}
_LEVELS = ("emerg", "alert", "critical", "error", "warning", "notice", "info", "debug")
_ALWAYS = {
    "enable.idempotence": ("true", "transactions need it"),
    "acks": ("all", "a message that is not on all replicas may be lost"),
    "request.required.acks": ("all", "a message that is not on all replicas may be lost"),
    "isolation.level": ("read_committed", "what is not committed does not count"),
}
"""Options that have one value: that, and why."""

_FIXED = {
    "transactional.id": "it is made of the storage directory's identity and the connector's name, so that an"
    " earlier run of the pipeline is turned away",
    "enable.partition.eof": "Penstock needs it to find the end of the topic",
    "auto.offset.reset": "Penstock says where to read",
    "enable.auto.commit": "nothing of what is read is kept",
    "enable.auto.offset.store": "nothing of what is read is kept",
    "delivery.report.only.error": "Penstock sets it",
}
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


_OVERTAKEN = (
    "another run of this pipeline, or of a copy of its storage directory, has taken over. Only one may write:"
    " stop the one that is not wanted, and start the other again."
)


class KafkaOutput(Output):
    """Writes to one topic."""

    def __init__(
        self,
        name: str,
        topic: str,
        producing: Cluster,
        reading: Cluster,
        encoder: Encoder,
        headers: Headers | None = None,
    ) -> None:
        self.name = name
        self._topic = topic
        self._producing = producing
        self._reading = reading
        self._encoder = encoder
        self._headers = headers or []
        self._owner = ""
        self._producer: _Producer | None = None
        self._settled: _Settled | None = None
        self._last = self._tried = NOTHING
        self._opened = False
        self._expired = False

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        for name, instead in _REFUSED.items():
            if config.values.get(name) is not None:
                raise ConnectorError(f"{config.path}.{name}: not supported; {instead}")
        topic = config.required("topic", str)
        config.count("initialization_timeout_secs")  # of the reference API: here it is tried without end
        base = Cluster.of(_without_always(config), _FIELDS, _FIXED)
        producing, reading = (
            _with_options(base, config, f"{role}_options") for role in ("producer", "consumer")
        )
        encoder = _encoder(connector, view, topic)
        output = cls(connector.name, topic, producing, reading, encoder, _headers(config, encoder))
        output._check_options()
        return output

    def open(self, owner: str, schema: pa.Schema) -> int:
        self._owner = owner
        self._encoder.open(schema)
        self._last = self._tried = NOTHING
        self._opened = False
        self._connect()
        self._opened = True
        return self._last

    def write(self, transaction: int, changes: pa.Table) -> None:
        producer = self._producer or self._connect()
        if transaction <= self._last:
            return
        self._tried = transaction
        try:
            producer.deliver(
                self._encoder.messages(changes, f"connector {self.name}, transaction {transaction}"),
                self._message_headers(transaction),
                f"connector {self.name}: cannot write transaction {transaction} to the topic {self._topic}",
            )
        except Exception:
            self.close()  # the next attempt begins with a new producer, and asks the topic again
            raise
        self._last = transaction

    @property
    def forgot(self) -> str | None:
        if self._expired:
            gone = "have expired"
        elif self._last != NOTHING and Topics(self._reading).compacted([self._topic]):
            gone = "were compacted away"  # also such as say that a key is gone
        else:
            return None
        return (
            f"messages of the topic {self._topic} {gone}, its own among them: nobody can tell what it"
            " has. Delete the topic and create it again to have it begin with the rows of its view at the"
            " next start, or give the output another name."
        )

    def close(self) -> None:
        self._settled = None
        self._drop()

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.drop()
            self._producer = None

    def _connect(self) -> _Producer:
        """A new producer; `_last` is what the topic has then."""
        self._drop()
        with named(self.name):
            topics = Topics(self._reading)
            topic = topics.describe([self._topic])[self._topic]
            if topic is None:
                # One that was there may be unknown to a broker for a moment.
                raise (UnreachableError if self._opened else ConnectorError)(
                    f"there is no topic {self._topic} (Kafka at {self._reading.shown}); create it, with as"
                    " many partitions as its consumers need"
                )
            if self._settled is None or self._settled.topic != topic:
                self._settled = self._settle(topics, topic)
            settled = self._settled
            wait_for(topics, topic, settled.ends)
            found = self._found(topics, topic, settled.ends)
            first = topics.starts([(topic.name, partition) for partition in topic.partitions])
            self._expired = any(first.values())
        # What this run committed it has, even if the topic's retention has taken it away since.
        self._last = max(self._last, found)
        self._producer, self._settled = settled.producer, None
        return settled.producer

    def _settle(self, topics: Topics, topic: Topic) -> _Settled:
        """A new producer. What an earlier one tried to commit has come through then, or never will."""
        if self._opened:  # before a new producer turns away whoever writes now
            # What an earlier one left open ends only by that, so what is behind it is not waited for.
            self._found(topics, topic, ends_of(topics, topic, committed=True))
        producer = _Producer(self._producing, self._topic, f"penstock-{self._owner}-{self.name}")
        producer.settle()
        return _Settled(producer, topic, ends_of(topics, topic, committed=False))

    def _found(self, topics: Topics, topic: Topic, ends: Mapping[int, int]) -> int:
        """The last transaction that the topic has before these ends; refuses one that another run wrote."""
        found = last_transaction(self._reading, topics, topic, self._mark, ends)
        if self._opened:
            self._refuse_if_overtaken(found)
        return found

    @property
    def _mark(self) -> str:
        """Whose messages are this output's."""
        return f"{self._owner}/{self.name}"

    def _refuse_if_overtaken(self, found: int) -> None:
        """What this run did not try to write is another one's."""
        if found > max(self._last, self._tried):
            raise ConnectorError(
                f"the topic {self._topic} has transaction {found}, which this run did not write: {_OVERTAKEN}"
            )

    def _message_headers(self, transaction: int) -> dict[str | None, Headers]:
        """What a message carries beside its key and its value, by its `op`."""
        own = [
            (TRANSACTION_HEADER, str(transaction).encode()),
            (OWNER_HEADER, self._mark.encode()),
            *self._headers,
        ]
        if not self._encoder.op_header:
            return {None: own}
        return {op: [*own, ("op", op.encode())] for op in ("insert", "delete")}

    def _check_options(self) -> None:
        """librdkafka knows its options itself, and says so without a broker."""
        try:
            with named(self.name):
                _Producer(self._producing, self._topic, "penstock")
                self._reading.consumer().close()
        except (TypeError, ValueError) as error:  # what the layer between says to an option of its own
            raise ConnectorError(f"connector {self.name}: {error}") from error


@dataclass(frozen=True)
class _Settled:
    """A new producer, and where its topic ended then. What came before may have to be waited for, over
    several attempts; as long as the producer is the same, no other run of this output has written since."""

    producer: _Producer
    topic: Topic
    ends: Mapping[int, int]


class _Producer:
    """A transactional producer, for as long as nothing goes wrong with it."""

    def __init__(self, cluster: Cluster, topic: str, transactional_id: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._timeout = float(cluster.options.get(_TRANSACTION_TIMEOUT, _DEFAULT_TIMEOUT_MS)) / 1000
        self._refused: list[KafkaError] = []
        refused = self._refused
        settings = cluster.settings(
            transactional_id=transactional_id,
            delivery_report_only_error=True,  # a call into Python takes as long as sending the message
        )
        settings["on_delivery"] = lambda error, _: refused.append(error)
        self._began = 0.0
        with cluster.errors("cannot make a producer"):
            self._client: Producer | None = Producer(settings)

    def settle(self) -> None:
        """Have the broker finish or abort what an earlier producer with this id left, and turn it away."""
        doing = f"cannot begin to write to the topic {self._topic}"
        try:
            self._running.init_transactions(STALL_SECONDS)
        except KafkaException as error:
            raise self._failure(error.args[0], doing) from error

    def deliver(self, messages: Iterator[Message], headers: Mapping[str | None, Headers], doing: str) -> None:
        """Write messages as one transaction. After an error it is of no use any more."""
        client = self._running
        self._began = time.monotonic()
        try:
            client.begin_transaction()
            self._send(client, messages, headers, doing)
            self._wait(client, 0, doing)
            failpoint("kafka.sent")
        except KafkaException as error:
            raise self._failure(self._abort() or error.args[0], doing) from error
        except Exception:
            self._abort()
            raise
        try:
            self._commit(client)
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                reason = self._abort() or reason
            raise self._failure(reason, doing) from error

    def drop(self) -> None:
        """Let go of it at once. It does not send what it still has; if it has, nobody would see it."""
        self._client = None

    @property
    def _running(self) -> Producer:
        assert self._client is not None, "nothing is done with a dropped producer"
        return self._client

    def _send(
        self,
        client: Producer,
        messages: Iterator[Message],
        headers: Mapping[str | None, Headers],
        doing: str,
    ) -> None:
        topic, produce = self._topic, client.produce
        for count, (key, value, op) in enumerate(messages, 1):
            while True:
                try:
                    produce(topic, value, key, headers=headers[op])
                    break
                except BufferError:  # too many of them, or too many bytes
                    if not len(client):
                        raise ConnectorError(
                            f"{doing}: a message does not fit into the producer's queue; raise"
                            " queue.buffering.max.kbytes of the connector"
                        ) from None
                    self._wait(client, len(client) // 2, doing)
            if count % _POLL_EVERY == 0:
                client.poll(0)
                self._check_refused()

    def _wait(self, client: Producer, most: int, doing: str) -> None:
        """Wait until at most so many messages are left, as long as they become fewer."""
        left, moved = len(client), time.monotonic()
        while True:
            now = client.flush(0.2) if most == 0 else _polled(client)
            self._check_refused()
            if now <= most:
                return
            if now < left:
                left, moved = now, time.monotonic()
            elif time.monotonic() - moved > STALL_SECONDS:
                raise UnreachableError(
                    f"{doing} (Kafka at {self._cluster.shown}): {now} messages wait, and none was taken for"
                    f" {STALL_SECONDS:.0f} s"
                )

    def _check_refused(self) -> None:
        if self._refused:
            raise KafkaException(self._refused[0])

    def _commit(self, client: Producer) -> None:
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            try:
                client.commit_transaction(TIMEOUT_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)

    def _abort(self) -> KafkaError | None:
        """Take the transaction back, so that readers of the topic do not wait for its end. Where that does
        not work the next producer does it. A fatal error is the reason for all others, and is returned."""
        try:
            self._running.abort_transaction(_ABORT_SECONDS)
        except KafkaException as error:
            return error.args[0] if error.args[0].fatal() else None
        return None

    def _failure(self, error: KafkaError, doing: str) -> ConnectorError:
        """What an error means: a new producer may try again, or it may not."""
        if error.code() in _FENCED:
            if self._began and time.monotonic() - self._began >= self._timeout:
                return UnreachableError(
                    f"{doing}: it was not finished within {self._timeout:.0f} s, and the broker gave it up."
                    f" If that happens again, set '{_TRANSACTION_TIMEOUT}' to more; brokers allow 900000"
                    " unless their transaction.max.timeout.ms says otherwise."
                )
            return ConnectorError(f"{doing}: {_OVERTAKEN}")
        failure = self._cluster.failure(error, doing)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return ConnectorError(
                f"{failure}. A message is larger than 'message.max.bytes' of the connector or"
                " 'max.message.bytes' of the topic; set both to more."
            )
        return failure if is_final(error) else UnreachableError(str(failure))


def _polled(client: Producer) -> int:
    client.poll(0.05)
    return len(client)


# -- the configuration ----------------------------------------------------------------------------


def _without_always(config: Section) -> Section:
    """The section without options that say what is so anyway; they are refused if they say something else."""
    for name, (value, why) in _ALWAYS.items():
        found = config.values.get(name)
        said = {"-1": "all"}.get(str(found).lower(), str(found).lower())
        if found is not None and said != value:
            raise ConnectorError(f"{config.path}.{name}: is always '{value}': {why}")
    return Section(config.path, {name: v for name, v in config.values.items() if name not in _ALWAYS})


def _with_options(base: Cluster, config: Section, name: str) -> Cluster:
    """The cluster as one kind of client reaches it."""
    tolerance = config.section("fault_tolerance")
    tolerance.only(["consumer_options", "producer_options"])
    given = _without_always(tolerance.section(name))
    level = config.choice("log_level", _LEVELS, "critical")
    options = {**base.options, "log_level": str(_LEVELS.index(level)), **given.values}
    return Cluster.of(Section(given.path, options), [], _FIXED)


def _encoder(connector: Connector, view: View, topic: str) -> Encoder:
    form = Section.of(f"connector {connector.name}: format", connector.config.get("format") or {})
    form.only(["name", "config"])
    name = form.choice("name", ["json", "avro"], "json")
    key = index_columns(connector, view)
    if name == "avro":
        return AvroEncoder.of(connector.name, form.section("config"), topic, view.name, key)
    return JsonEncoder.of(connector.name, form.section("config"), key)


def _headers(config: Section, encoder: Encoder) -> Headers:
    """The field `headers`: keys, and values as text or as lists of bytes."""
    found: Headers = []
    for number, entry in enumerate(config.get("headers", list, [])):
        header = Section.of(f"{config.path}.headers[{number}]", entry)
        header.only(["key", "value"])
        key, value = header.required("key", str), header.values.get("value")
        if key in (TRANSACTION_HEADER, OWNER_HEADER) or (key == "op" and encoder.op_header):
            raise ConnectorError(f"{header.path}.key: '{key}' is a header of Penstock's own")
        if isinstance(value, str):
            value = value.encode()
        elif isinstance(value, list) and all(type(byte) is int and 0 <= byte < 256 for byte in value):
            value = bytes(value)
        elif value is not None:
            raise ConnectorError(
                f"{header.path}.value: expected a string or a list of bytes, found {value!r}"
            )
        found.append((key, value))
    return found
