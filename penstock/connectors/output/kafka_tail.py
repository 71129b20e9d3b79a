"""The last transaction that a topic has of one output.

Messages carry the number of their transaction and whose it is, so the topic itself knows what it has. It is
read from its end, partition by partition, until a message of that output comes up. Others may write to the
topic too, so that can be far.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Message as Received

from penstock.connectors.interface import NOTHING
from penstock.connectors.kafka import Cluster, Topic, Topics, is_final
from penstock.errors import UnreachableError

TRANSACTION_HEADER, OWNER_HEADER = "penstock-transaction", "penstock-owner"

_FIRST_WINDOW = 1_000
_GROWTH = 8
_MOST = 5_000
_STALL_SECONDS = 10.0
"""How long partitions may give nothing before they count as not reachable."""

_OPEN_SECONDS = 3.0
"""How long another producer's transaction is waited for."""


def last_transaction(
    cluster: Cluster, topics: Topics, topic: Topic, owner: str, ends: Mapping[int, int]
) -> int:
    """The greatest number that is committed before these ends of partitions, or `NOTHING`."""
    places = _places(topic)
    starts = {partition: offset for (_, partition), offset in topics.starts(places).items()}
    left = {partition: end for partition, end in ends.items() if end > starts[partition]}
    last, window = NOTHING, _FIRST_WINDOW
    if not left:
        return last
    consumer = cluster.consumer(
        isolation_level="read_committed",
        enable_partition_eof=True,
        auto_offset_reset="error",
        fetch_wait_max_ms=100,  # a request that waits at the end of one partition holds up those behind it
    )
    try:
        while left:
            ranges = {p: (max(starts[p], end - window), end) for p, end in left.items()}
            found = _Windows(cluster, consumer, topic.name, owner).read(ranges)
            last = max(last, *found.values(), NOTHING)
            left = {p: low for p, (low, _) in ranges.items() if p not in found and low > starts[p]}
            window *= _GROWTH
    finally:
        consumer.close()
    return last


def _places(topic: Topic) -> list[tuple[str, int]]:
    return [(topic.name, partition) for partition in topic.partitions]


def ends_of(topics: Topics, topic: Topic, *, committed: bool) -> dict[int, int]:
    """Where the partitions end now; `committed`: before the first open transaction."""
    return {p: end for (_, p), end in topics.ends(_places(topic), committed=committed).items()}


def wait_for(topics: Topics, topic: Topic, ends: Mapping[int, int]) -> None:
    """Wait until everything before these ends is committed or aborted.

    What is behind the beginning of an open transaction cannot be read, and the messages of this output might
    be there. Who is asked to try again comes with the same ends: a topic where there is always some
    transaction open is read all the same.
    """
    now = ends_of(topics, topic, committed=False)
    deadline = time.monotonic() + _OPEN_SECONDS
    while True:
        stable = ends_of(topics, topic, committed=True)
        behind = [p for p in sorted(ends) if stable[p] < min(ends[p], now[p])]
        if not behind:
            return
        if time.monotonic() > deadline:
            shown = ", ".join(f"{topic.name}[{partition}]" for partition in behind)
            raise UnreachableError(
                f"a transaction of another producer is open on {shown}, and what is behind its beginning"
                " cannot be read until it ends"
            )
        time.sleep(0.2)


class _Windows:
    """Reads a range of every partition at once."""

    def __init__(self, cluster: Cluster, consumer: Consumer, topic: str, owner: str) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._topic = topic
        self._owner = owner.encode()
        self._doing = f"cannot read the end of the topic {topic}"

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """The greatest number of a transaction in each of the ranges, where there is one."""
        found: dict[int, int] = {}
        left = {partition: end for partition, (_, end) in ranges.items()}
        with self._cluster.errors(self._doing):
            places = [TopicPartition(self._topic, p, low) for p, (low, _) in ranges.items()]
            self._consumer.assign(places)
            self._consumer.resume(places)  # the window before paused them, and that outlives an assignment
            heard = time.monotonic()
            while left:
                if time.monotonic() - heard > _STALL_SECONDS:
                    raise UnreachableError(f"{self._doing}: nothing came for {_STALL_SECONDS:.0f} s")
                first = self._consumer.poll(0.2)
                messages = [] if first is None else [first, *self._consumer.consume(_MOST, 0)]
                for message in messages:
                    partition = message.partition()
                    if message.topic() and partition not in left:
                        continue
                    at = self._next(message)
                    heard = heard if at is None else time.monotonic()
                    if (
                        at is not None
                        and at <= left[partition]
                        and (number := self._number(message)) is not None
                    ):
                        found[partition] = max(found.get(partition, NOTHING), number)
                    if at is not None and at >= left[partition]:
                        del left[partition]
                        self._consumer.pause([TopicPartition(self._topic, partition)])
        return found

    def _next(self, message: Received) -> int | None:
        """The offset up to which everything is read with this message; None if it says nothing about that."""
        error = message.error()
        if error is None:
            return int(message.offset()) + 1
        if error.code() == KafkaError._PARTITION_EOF:
            return int(message.offset())
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise UnreachableError(f"{self._doing}: its beginning was deleted meanwhile")
        if is_final(error):
            raise self._cluster.failure(error, self._doing)
        return None  # librdkafka tries again by itself

    def _number(self, message: Received) -> int | None:
        if message.error() is not None:
            return None
        headers = dict(message.headers() or ())
        if headers.get(OWNER_HEADER) != self._owner:
            return None
        number = headers.get(TRANSACTION_HEADER) or b""
        return int(number) if number.isdigit() else None  # somebody may have copied some of the headers
