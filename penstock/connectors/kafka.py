"""What the Kafka connectors share: how a cluster is reached, what its errors mean, and reading by offsets."""

from __future__ import annotations

import logging
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from penstock.connectors.config import Section
from penstock.errors import ConnectorError, DataExpiredError, TopicRecreatedError, UnreachableError
from penstock.references import has_reference, resolved

_log = logging.getLogger("penstock")

TIMEOUT_SECONDS = 5.0
"""How long one question to the cluster may take before it counts as not reachable."""

STALL_SECONDS = 30.0
"""How long a partition may give nothing, though it has something, before it counts as not reachable."""

_END_SECONDS = 0.5
"""How long the end of a partition is waited at for more of a range before it is asked for anew."""

PATIENCE_SECONDS = 15.0
"""How long a partition may end too soon before its messages count as lost: it may do so for a moment while a
broker comes back."""

_QUIET = 2
"""librdkafka logs what is critical; what goes wrong is also an error, and told as one."""

_SECRET = re.compile(r"(password|secret|passphrase|key\.pem|jaas\.config)$")
"""How the names of options end that are secrets."""

_CODE = re.compile(r"plugin\.library\.paths|ssl\.(providers|engine\..*)|sasl\.kerberos\..*")
"""Options that load libraries, or become part of a command of the shell."""

_FINAL = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.TOPIC_EXCEPTION,
    }
)
"""What does not go away by itself. Everything else is tried again, also that a topic is not known: brokers
say so of a new partition until they have heard of it. And also that a group must not be used: librdkafka asks
for the coordinator of one, and nothing here needs it."""

_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

COMPACTED = (
    "Set 'min.compaction.lag.ms' of the topic to more than the time between checkpoints and that for which"
    " the pipeline may stand still; to go on with what is there, set 'resume_earliest_if_data_expires' to"
    " true; to read everything that is there anew, start with an empty storage directory."
)
"""What can be done about messages that are gone since another one with their key came."""

EXPIRED = (
    "The topic keeps messages for a shorter time than it took to read them. Make its retention longer; to"
    " accept the gap and go on with what is there, set 'resume_earliest_if_data_expires' to true; to read"
    " everything that is there anew, start with an empty storage directory."
)
"""What can be done about it."""

UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def is_final(error: KafkaError) -> bool:
    """Whether it does not go away by itself, not even with a new client."""
    return error.code() in _FINAL


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster, with references to secrets unresolved."""

    options: Mapping[str, str] = field(hash=False)
    """librdkafka's own."""
    where: str = "Kafka"
    """Which field has them, for messages."""

    @classmethod
    def of(cls, config: Section, own: Sequence[str], fixed: Mapping[str, str]) -> Cluster:
        """The fields of a configuration that are not the connector's `own` are librdkafka's. What is `fixed`,
        name -> reason, cannot be set."""
        options: dict[str, str] = {}
        for name, value in config.values.items():
            if name in own:
                continue
            if name in fixed:
                raise ConnectorError(f"{config.path}.{name}: cannot be set: {fixed[name]}")
            if _CODE.fullmatch(name):
                raise ConnectorError(
                    f"{config.path}.{name}: cannot be set: it would run code that is not Penstock's"
                )
            if isinstance(value, bool):
                options[name] = "true" if value else "false"
            elif isinstance(value, str | int | float):
                options[name] = str(value)
            else:
                raise ConnectorError(
                    f"{config.path}.{name}: expected a string, the value of an option of librdkafka; found"
                    f" {value!r}"
                )
            if _SECRET.search(name) and not has_reference(options[name]):
                raise ConnectorError(
                    f"{config.path}.{name}: a secret must not stand in a program; put it into an environment"
                    " variable of the driver and the executors, and write ${env:NAME} with its name here"
                )
        if "bootstrap.servers" not in options:
            raise ConnectorError(
                f"{config.path}: the field 'bootstrap.servers' is missing; expected 'host:port,...'"
            )
        return cls(options, config.path)

    def settings(self, **more: Any) -> dict[str, Any]:
        """What a client of librdkafka is made of; underscores in the names of `more` stand for dots, but for
        those of functions."""
        found: dict[str, Any] = {name: resolved(value) for name, value in self.options.items()}
        found |= {n if callable(value) else n.replace("_", "."): value for n, value in more.items()}
        return {"log_level": _QUIET, **found, "logger": _log}

    def consumer(self, **more: Any) -> Consumer:
        """A consumer that is given its partitions, and remembers nothing."""
        settings = self.settings(enable_auto_commit=False, enable_auto_offset_store=False, **more)
        settings.setdefault("group.id", "penstock")  # librdkafka wants one
        with self.errors("cannot make a consumer"):
            try:
                return Consumer(settings)
            except (TypeError, ValueError) as error:  # what the layer between says to an option of its own
                raise ConnectorError(f"cannot make a consumer: {error}") from error

    def admin(self) -> AdminClient:
        """Who can be asked about topics."""
        with self.errors("cannot make a client"):
            return AdminClient(self.settings())

    @property
    def read_committed(self) -> bool:
        return resolved(self.options.get("isolation.level", "read_committed")).lower() == "read_committed"

    @property
    def shown(self) -> str:
        return resolved(self.options["bootstrap.servers"])

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn what librdkafka raises into what it means for the pipeline."""
        try:
            yield
        except KafkaException as error:
            raise self.failure(error.args[0], doing) from error

    def failure(self, error: KafkaError, doing: str) -> ConnectorError:
        """What an error of librdkafka means: that it may be tried again, or that it may not."""
        said = f"{doing} (Kafka at {self.shown}): {' '.join(error.str().split())}"
        final = error.code() in _FINAL or error.fatal()
        return (ConnectorError if final else UnreachableError)(said)


@contextmanager
def named(connector: str) -> Iterator[None]:
    """Errors say whose they are."""
    try:
        yield
    except ConnectorError as error:
        raise type(error)(f"connector {connector}: {error}") from error


def recreated(topic: str, found: str) -> TopicRecreatedError:
    """What to say of a topic that is not the one that was read before."""
    return TopicRecreatedError(
        f"the topic {topic} was deleted and made again, or lost messages: {found}. What"
        " was read of the topic before is in the views. To go on from the new one as well, give the"
        " connector another name; to begin with the new one only, start with an empty storage directory."
    )


def lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a Kafka connector the one that it is. How its cluster is reached is not of it, nor where it
    begins and what it does about gaps: all of these may be others after a restart.

    >>> lasting({"topic": "orders", "bootstrap.servers": "localhost:9092", "envelope": "upsert"})
    {'topic': 'orders', 'envelope': 'upsert'}
    """
    found = {name: value for name, value in config.items() if name in _LASTING or name.startswith("include_")}
    if str(config.get("isolation.level", "read_committed")).lower() != "read_committed":
        found["isolation.level"] = config["isolation.level"]
    return found


_LASTING = ("topic", "topics", "partitions", "envelope", "key_format")


@dataclass(frozen=True)
class Topic:
    """What a cluster says about a topic now."""

    name: str
    id: str | None
    """Another one if it was deleted and made again; None where the cluster is too old to have ids."""
    partitions: tuple[int, ...]


class Topics:
    """Asks a cluster about topics."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = cluster.admin()

    def describe(self, names: Sequence[str]) -> dict[str, Topic | None]:
        """What there is of these topics; None: nothing."""
        with self._cluster.errors(f"cannot ask about {listed(names)}"):
            asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_SECONDS)
        found: dict[str, Topic | None] = {}
        for name in names:
            try:
                told = asked[name].result()
            except KafkaException as error:
                if error.args[0].code() not in UNKNOWN_TOPIC:
                    doing = f"cannot ask about the topic {name}"
                    raise self._cluster.failure(error.args[0], doing) from error
                found[name] = None
                continue
            id_ = None if told.topic_id is None else str(told.topic_id)
            found[name] = Topic(name, id_, tuple(sorted(p.id for p in told.partitions)))
        return found

    def compacted(self, names: Sequence[str]) -> list[str]:
        """The topics of which only the last message of each key is kept, as far as the cluster says."""
        doing = f"cannot ask how {listed(names)} is cleaned up"
        with self._cluster.errors(doing):
            asked = self._admin.describe_configs(
                [ConfigResource(ResourceType.TOPIC, name) for name in names], request_timeout=TIMEOUT_SECONDS
            )
        found = []
        for resource, future in asked.items():
            try:
                policy = future.result()["cleanup.policy"].value
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._cluster.failure(error.args[0], doing) from error
                _log.warning("%s: the right to describe its configuration is missing", doing)
                continue
            if "compact" in policy:
                found.append(resource.name)
        return found

    def ends(self, partitions: Sequence[tuple[str, int]], *, committed: bool) -> dict[tuple[str, int], int]:
        """The offsets after the last message of each; `committed`: before the first open transaction."""
        return self._offsets({p: OffsetSpec.latest() for p in partitions}, committed=committed)

    def starts(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offsets of the first message that is still there."""
        return self._offsets({p: OffsetSpec.earliest() for p in partitions}, committed=False)

    def since(
        self, partitions: Sequence[tuple[str, int]], milliseconds: int, *, committed: bool
    ) -> dict[tuple[str, int], int]:
        """The offsets of the first message that is not older; the end if all are."""
        asked = {p: OffsetSpec.for_timestamp(milliseconds) for p in partitions}
        found = self._offsets(asked, committed=committed)
        if late := [p for p, offset in found.items() if offset < 0]:
            found |= self.ends(late, committed=committed)
        return found

    def _offsets(
        self, asked: Mapping[tuple[str, int], OffsetSpec], *, committed: bool
    ) -> dict[tuple[str, int], int]:
        if not asked:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        doing = f"cannot ask for the offsets of {listed(sorted({topic for topic, _ in asked}))}"
        with self._cluster.errors(doing):
            told = self._admin.list_offsets(
                {TopicPartition(*partition): spec for partition, spec in asked.items()},
                isolation_level=level,
                request_timeout=TIMEOUT_SECONDS,
            )
            found = {(place.topic, place.partition): int(f.result().offset) for place, f in told.items()}
        if OFFSET_INVALID in found.values():  # a broker that is going down may answer so
            raise UnreachableError(f"{doing} (Kafka at {self._cluster.shown}): the answer has no offset")
        return found


def listed(names: Sequence[str]) -> str:
    return f"the topic{'s' if len(names) > 1 else ''} {', '.join(names)}"


_READING: Mapping[str, Any] = {
    # What was fetched and not asked for is memory: the default would be 64 MiB.
    "queued.max.messages.kbytes": 16 << 10,
    # A request that waits at the end of one partition holds up the first one for another.
    "fetch.wait.max.ms": 100,
    # When so much was fetched that it waits to be asked for, the next request would wait for a second.
    "fetch.queue.backoff.ms": 10,
}
"""librdkafka's options where the configuration says nothing."""


def _is_sign(message: Message) -> bool:
    """Whether it tells that the partition is read, rather than of trouble."""
    error = message.error()
    return error is None or bool(error.code() == KafkaError._PARTITION_EOF)


def _offset(message: Message) -> int:
    return int(message.offset())


CHUNK_BYTES = 16 << 20
"""About the most bytes of messages that are in memory at once."""


class RangeReader:
    """Reads ranges of offsets. What it read last is where it can go on without asking anew."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        unset = {name: value for name, value in _READING.items() if name not in cluster.options}
        self._consumer = cluster.consumer(
            **{name.replace(".", "_"): value for name, value in unset.items()},
            enable_partition_eof=True,
            auto_offset_reset="error",
        )
        self._topics: Topics | None = None
        self._at: tuple[str, str | None, int, int] | None = None
        self._left: list[Message] = []

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        most: int,
        *,
        topic_id: str | None = None,
        skipped: Callable[[int, int], None] | None = None,
    ) -> Iterator[list[Message]]:
        """The messages with offsets from `start` to before `end`, in lists of at most `most`, or of fewer if
        they are large.

        There may be fewer than that: offsets have gaps where a topic is compacted, and where a transaction
        ended. Where messages are not there any more `skipped` is told from which offset to which, if it is
        given. What another topic of that name had is refused, after it was read.
        """
        if start >= end:
            return
        doing = f"cannot read offsets {start} to {end} of {topic}[{partition}]"
        with self._cluster.errors(doing):
            if self._at != (topic, topic_id, partition, start):
                self._left = []
                self._consumer.assign([TopicPartition(topic, partition, start)])
        self._at = None  # until the range is done
        gathered: list[Message] = []
        size = 0
        heard = time.monotonic()
        ended = False
        ended_first: float | None = None
        """When the end was seen for the first time since there was a message."""
        next_ = start
        while next_ < end:
            messages = self._left or self._received(most)
            self._left = []
            now = time.monotonic()
            if not messages and ended and now - heard > _END_SECONDS:
                # The partition was at its end, perhaps before the rest of the range came to be: look again.
                if ended_first is not None and now - ended_first > PATIENCE_SECONDS:
                    raise TopicRecreatedError(
                        f"{doing}: the partition ends at offset {next_}. The topic lost messages, or was"
                        " deleted and made again. Put the messages back, or start with an empty storage"
                        " directory."
                    )
                self._consumer.assign([TopicPartition(topic, partition, next_)])
                ended, heard = False, time.monotonic()
            elif not any(map(_is_sign, messages)) and now - heard > STALL_SECONDS:
                raise UnreachableError(
                    f"{doing} (Kafka at {self._cluster.shown}): nothing came for {STALL_SECONDS:.0f} s"
                )
            if messages and not any(message.error() for message in messages):
                heard, ended_first = now, None
                cut = bisect_left(messages, end, key=_offset)
                more = sum(map(len, messages[:cut]))
                if len(gathered) + cut <= most and size + more < CHUNK_BYTES:
                    gathered += messages[:cut]  # nearly always, and a third of the work
                    size += more
                    self._left = messages[cut:]
                    next_ = end if self._left else messages[-1].offset() + 1
                    continue
            for index, message in enumerate(messages):
                error = message.error()
                if error is not None:
                    if message.topic() and (message.topic(), message.partition()) != (topic, partition):
                        continue  # of what was read before
                    if error.code() == KafkaError._PARTITION_EOF:
                        next_ = max(next_, message.offset())
                        ended, heard = True, now
                        ended_first = ended_first or now
                        if next_ >= end:
                            self._left = messages[index:]  # it does not come twice, and the next may need it
                            break
                    elif error.code() in _OUT_OF_RANGE:
                        if message.offset() not in (next_, OFFSET_INVALID):
                            continue  # the same
                        next_ = self._after_expired(topic, partition, next_, end, doing, skipped)
                    else:
                        self._refuse(error, doing)
                    continue
                if message.offset() >= end:
                    self._left = messages[index:]
                    next_ = end
                    break
                next_ = message.offset() + 1
                gathered.append(message)
                size += len(message)
                heard, ended_first = now, None
                if len(gathered) == most or size >= CHUNK_BYTES:
                    yield gathered
                    gathered, size = [], 0
                    heard = time.monotonic()  # whatever they took who got them
        if gathered:
            yield gathered
        if topic_id is not None:
            self._refuse_another(topic, topic_id)
        self._at = (topic, topic_id, partition, end)

    def _received(self, most: int) -> list[Message]:
        """What is there; waits only if there is nothing."""
        first = self._consumer.poll(0.2)
        return [] if first is None else [first, *self._consumer.consume(most, 0)]

    def _refuse_another(self, topic: str, topic_id: str) -> None:
        """An id does not come back, so what has it now had it while it was read."""
        if self._topics is None:
            self._topics = Topics(self._cluster)
        found = self._topics.describe([topic])[topic]
        if found is None:
            raise UnreachableError(f"the topic {topic} is gone from Kafka at {self._cluster.shown}")
        if found.id is not None and found.id != topic_id:
            raise recreated(topic, f"its id was {topic_id} and is {found.id}")

    def _after_expired(
        self,
        topic: str,
        partition: int,
        next_: int,
        end: int,
        doing: str,
        skipped: Callable[[int, int], None] | None,
    ) -> int:
        """Where to go on, or at least before `end`, if the next offset is not there."""
        with self._cluster.errors(doing):
            place = TopicPartition(topic, partition)
            first, last = self._consumer.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS)
        if next_ > last:
            raise TopicRecreatedError(
                f"{doing}: the partition ends at offset {last}. The topic lost messages, or was deleted and"
                " made again. Put the messages back, or start with an empty storage directory."
            )
        if skipped is None:
            raise DataExpiredError(f"{doing}: the first one that is still there is {first}. {EXPIRED}")
        start = min(max(int(first), next_), end)
        skipped(next_, start)
        self._consumer.assign([TopicPartition(topic, partition, start)])
        return start

    def _refuse(self, error: KafkaError, doing: str) -> None:
        failure = self._cluster.failure(error, doing)
        if not isinstance(failure, UnreachableError):
            raise failure
        # librdkafka tries again by itself; how long it may is decided above.

    def close(self) -> None:
        self._consumer.close()
