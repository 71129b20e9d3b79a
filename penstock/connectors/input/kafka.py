"""`kafka_input`: topics of Kafka.

The driver asks the cluster only where partitions end. A split is a range of offsets of one partition; reading
and parsing it is a Spark task. A position is the next offset of each partition, with the id of its topic: a
topic that was deleted and made again has another one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.connectors.config import Section
from penstock.connectors.input.kafka_config import FIELDS, FIXED, Start, reading_of
from penstock.connectors.input.kafka_rows import rows_of
from penstock.connectors.interface import MAX_BATCH_ROWS, READING, BadRecord, Input, Reject, Split
from penstock.connectors.kafka import (
    COMPACTED,
    EXPIRED,
    PATIENCE_SECONDS,
    Cluster,
    RangeReader,
    Topic,
    Topics,
    listed,
    named,
    recreated,
)
from penstock.errors import (
    ConnectorError,
    DataCompactedError,
    DataExpiredError,
    PartitionsMissingError,
    UnreachableError,
)

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

_log = logging.getLogger("penstock")

SOURCE = "kafka"

SPLIT_MESSAGES = 50_000
"""Most offsets of one split, so that a partition is read by several tasks."""

_LOOK_SECONDS = 5.0
"""How often the cluster is asked which partitions there are, and which messages are still there."""

_LOOK_BEFORE_SECONDS = 1.0
"""The same, before something is read."""

_QUIET_AFTER_SECONDS = 5.0
_QUIET_SECONDS = 0.1
"""How often a cluster that has had nothing new for a while is asked whether it has."""

_CLOSE_SECONDS = 2.0
"""How long a stop waits for the group to have the last offsets."""

Place = tuple[str, int]
"""A partition: its topic and its number."""


@dataclass
class _Progress:
    """How far a topic was handed out."""

    id: str | None
    next: dict[int, int] = field(default_factory=dict)
    """Partition -> offset."""


class KafkaInput(Input):
    """Hands out ranges of offsets, of each partition as many."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        topics: Sequence[str],
        start: Start,
        *,
        reading: Mapping[str, Any],
        partitions: Sequence[int] | None = None,
        skip_expired: bool = False,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._names = sorted(topics)
        self._start = start
        self._reading = {**reading, "options": dict(cluster.options), "skip_expired": skip_expired}
        self._only = partitions
        self._skip_expired = skip_expired
        self._topics: Topics | None = None
        self._committer: Consumer | None = None
        self._uncommitted = 0
        self._progress: dict[str, _Progress] = {}
        self._began: dict[str, _Progress] = {}
        self._unrecorded = False
        self._looked: float | None = None
        self._short: float | None = None
        self._news = self._polled = time.monotonic()
        self._lag: dict[str, dict[str, int]] = {}
        with named(self.name):
            cluster.consumer().close()  # says which option is wrong, before anything else is done

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        cluster = Cluster.of(config, FIELDS, FIXED)
        return cls(
            connector.name,
            cluster,
            _topics(config),
            Start.of(config),
            reading=reading_of(connector, config, table),
            partitions=_partitions(config),
            skip_expired=config.get("resume_earliest_if_data_expires", bool, False),
        )

    # -- what is new ----------------------------------------------------------------------------

    def poll(self, max_rows: int) -> list[Split]:
        with named(self.name):
            return self._poll(max_rows)

    def _poll(self, max_rows: int) -> list[Split]:
        now = time.monotonic()
        if now - self._news > _QUIET_AFTER_SECONDS and now - self._polled < _QUIET_SECONDS:
            return []
        self._polled = now
        if self._is_due(_LOOK_SECONDS):
            self._look()
        ends = self._ends(self._asked, self._progress)
        waiting = [place for place, end in ends.items() if end > self._next(place)]
        if waiting:
            self._news = now
        if waiting and self._is_due(_LOOK_BEFORE_SECONDS):
            self._look()  # the offsets may be those of another topic of that name
        splits: list[Split] = []
        share = max(max_rows // max(len(waiting), 1), 1)
        for topic, partition in waiting:
            progress = self._progress[topic]
            start = progress.next[partition]
            end = max(min(ends[topic, partition], start + share), start)
            for first in range(start, end, SPLIT_MESSAGES):
                last = min(first + SPLIT_MESSAGES, end)
                splits.append(self._split(progress, topic, partition, first, last))
            progress.next[partition] = end
        self._measure(ends)
        if self._unrecorded and not splits:
            # A start that depends on the moment must be the same after a crash: it is recorded by ranges of
            # no messages.
            splits = [
                self._split(progress, topic, partition, offset, offset)
                for topic, progress in self._progress.items()
                for partition, offset in progress.next.items()
            ]
        self._unrecorded = False
        return splits

    def _split(self, progress: _Progress, topic: str, partition: int, start: int, end: int) -> Split:
        payload = {"topic": topic, "id": progress.id, "partition": partition, "start": start, "end": end}
        return Split(SOURCE, payload, end - start)

    @property
    def ended(self) -> bool:
        return False

    @property
    def position(self) -> Any:
        return {
            "topics": {
                topic: {"id": progress.id, "next": {str(p): offset for p, offset in progress.next.items()}}
                for topic, progress in self._progress.items()
            }
        }

    def has_reached(self, position: Any, earlier: Any) -> bool:
        for topic, then in earlier["topics"].items():
            now = position["topics"].get(topic, {"id": None, "next": {}})
            if now["id"] != then["id"] or any(now["next"].get(p, -1) < n for p, n in then["next"].items()):
                return False
        return True

    def seek(self, position: Any) -> None:
        """To a position before everything: to where it began, if it did."""
        began = {name: at for name, at in self._began.items() if name not in position["topics"]}
        self._progress = {name: _Progress(at.id, dict(at.next)) for name, at in began.items()} | {
            topic: _Progress(at["id"], {int(p): offset for p, offset in at["next"].items()})
            for topic, at in position["topics"].items()
            if topic in self._names
        }
        self._looked = None
        self._news = time.monotonic()
        self._unrecorded = bool(began) and self._start.is_of_the_moment

    @property
    def reading(self) -> Mapping[str, Any]:
        return self._reading

    def stats(self) -> Mapping[str, Any]:
        return {"partitions": dict(self._lag), "lag": sum(found["lag"] for found in self._lag.values())}

    def acknowledge(self, position: Any) -> None:
        """Commit the offsets to the group, for those who watch it: nothing is ever read back from there."""
        if "group.id" not in self._cluster.options:
            return
        offsets = [
            TopicPartition(topic, int(partition), offset)
            for topic, at in position["topics"].items()
            for partition, offset in at["next"].items()
        ]
        try:
            if self._committer is None:
                self._committer = self._cluster.consumer(on_commit=self._committed)
            self._committer.commit(offsets=offsets, asynchronous=True)
            self._uncommitted += 1
            self._committer.poll(0)
        except (ConnectorError, KafkaException) as error:
            self._warn(error)

    def _committed(self, error: KafkaError | None, _: Sequence[TopicPartition]) -> None:
        self._uncommitted -= 1
        self._warn(error)

    def _warn(self, error: Exception | KafkaError | None) -> None:
        if error is not None:
            _log.warning("connector %s: offsets were not committed to the group: %s", self.name, error)

    def close(self) -> None:
        if self._committer is not None:
            deadline = time.monotonic() + _CLOSE_SECONDS
            while self._uncommitted and time.monotonic() < deadline:
                self._committer.poll(0.1)
            self._committer.close()
        self._committer = self._topics = None

    # -- what the cluster says ------------------------------------------------------------------

    @property
    def _asked(self) -> Topics:
        if self._topics is None:
            self._topics = Topics(self._cluster)
        return self._topics

    def _is_due(self, seconds: float) -> bool:
        return self._looked is None or time.monotonic() - self._looked >= seconds

    def _next(self, place: Place) -> int:
        return self._progress[place[0]].next[place[1]]

    def _ends(self, topics: Topics, read: Mapping[str, _Progress]) -> dict[Place, int]:
        """Where partitions end now; raises if one ends before what was read of it."""
        ends = topics.ends(_places(read), committed=self._cluster.read_committed)
        for (topic, partition), end in sorted(ends.items()):
            next_ = read[topic].next[partition]
            if end < next_:
                short = f"partition {partition} ends at offset {end}, and was read up to {next_}"
                raise self._patiently(recreated(topic, short))
        self._short = None
        return dict(sorted(ends.items()))

    def _patiently(self, error: ConnectorError) -> ConnectorError:
        """An error that counts only if it lasts: brokers that come and go may know too little at first."""
        now = time.monotonic()
        self._short = now if self._short is None else self._short
        if now - self._short > PATIENCE_SECONDS:
            return error
        self._looked = None  # so that a topic which is another one is known at once
        return UnreachableError(f"if that lasts it is an error: {error}")

    def _measure(self, ends: Mapping[Place, int]) -> None:
        self._lag = {
            f"{topic}[{partition}]": {
                "next": self._next((topic, partition)),
                "end": end,
                "lag": end - self._next((topic, partition)),
            }
            for (topic, partition), end in ends.items()
        }

    def _look(self) -> None:
        """Find out which partitions there are, and that they are still those that were read before."""
        told = self._asked.describe(self._names)
        for name in self._names:
            progress = self._progress.get(name)
            topic = self._check(name, told[name], progress)
            if progress is None:
                begun = self._started(topic)
                self._progress[name] = _Progress(topic.id, begun)
                self._began[name] = _Progress(topic.id, dict(begun))
                self._unrecorded = self._unrecorded or self._start.is_of_the_moment
            else:
                new = [(name, p) for p in self._wanted(topic) if p not in progress.next]
                for (_, partition), offset in self._asked.starts(new).items():
                    _log.info("connector %s: %s has a new partition, %d", self.name, name, partition)
                    progress.next[partition] = offset
        first = self._asked.starts(_places(self._progress))
        for place, offset in sorted(first.items()):
            if offset > self._next(place):
                self._skip(place, offset)
        self._looked = time.monotonic()

    def _wanted(self, topic: Topic) -> list[int]:
        return [p for p in topic.partitions if self._only is None or p in self._only]

    def _started(self, topic: Topic) -> dict[int, int]:
        """The offsets to begin with."""
        wanted = self._wanted(topic) if self._only is None else list(self._only)
        if missing := [p for p in wanted if p not in topic.partitions]:
            raise ConnectorError(
                f"the topic {topic.name} has no partition {missing[0]}; it has"
                f" {', '.join(map(str, topic.partitions))}"
            )
        places = [(topic.name, p) for p in wanted]
        committed = self._cluster.read_committed
        found = {p: offset for (_, p), offset in self._start.offsets(places, self._asked, committed).items()}
        ends = self._asked.ends(places, committed=False)
        for partition, offset in found.items():
            if offset > ends[topic.name, partition]:
                raise ConnectorError(
                    f"start_from: partition {partition} of {topic.name} ends at offset"
                    f" {ends[topic.name, partition]}, which is before {offset}"
                )
        return found

    def _check(self, name: str, topic: Topic | None, progress: _Progress | None) -> Topic:
        """Refuse a topic that is not there, or not the one that was read before, up to `progress`."""
        if topic is None:
            if progress is None:
                raise ConnectorError(
                    f"there is no topic {name} in Kafka at {self._cluster.shown}; create it,"
                    " or correct its name"
                )
            raise self._patiently(
                PartitionsMissingError(
                    f"the topic {name} is gone from Kafka at {self._cluster.shown}. Put it back with its"
                    " messages; to read another one in its place, start with an empty storage directory."
                )
            )
        if progress is None:
            return topic
        if progress.id is not None and topic.id is not None and progress.id != topic.id:
            raise recreated(name, f"its id was {progress.id} and is {topic.id}")
        if missing := sorted(set(progress.next) - set(topic.partitions)):
            raise self._patiently(
                PartitionsMissingError(
                    f"the topic {name} has {len(topic.partitions)} partitions, and partition {missing[0]} was"
                    " read before. Put it back, or start with an empty storage directory."
                )
            )
        return topic

    def _skip(self, place: Place, first: int) -> None:
        topic, partition = place
        gap = f"offsets {self._next(place)} to {first} of {topic}[{partition}] expired before they were read"
        if not self._skip_expired:
            raise DataExpiredError(f"{gap}. {EXPIRED}")
        _log.error("connector %s: %s; they are missing in the views from now on", self.name, gap)
        self._progress[topic].next[partition] = first

    # -- reading again --------------------------------------------------------------------------

    def readable(self, splits: Sequence[Split]) -> Sequence[Split]:
        with named(self.name):
            return self._readable(splits)

    def _readable(self, splits: Sequence[Split]) -> Sequence[Split]:
        ranges = [split for split in splits if split.payload["start"] < split.payload["end"]]
        if not ranges:
            return splits
        topics = Topics(self._cluster)
        told = topics.describe(sorted({split.payload["topic"] for split in ranges}))
        read: dict[str, _Progress] = {}
        for split in ranges:
            at = split.payload
            next_ = read.setdefault(at["topic"], _Progress(at["id"])).next
            next_[at["partition"]] = max(next_.get(at["partition"], 0), at["end"])
        for name, topic in told.items():
            self._check(name, topic, read[name])
        self._ends(topics, read)
        first = topics.starts(_places(read))
        return [kept for split in splits if (kept := self._kept(split, first)) is not None]

    def may_lack(self, splits: Sequence[Split]) -> bool:
        with named(self.name):
            names = Topics(self._cluster).compacted(sorted({split.payload["topic"] for split in splits}))
            if not names:
                return False
            gap = f"messages of {listed(names)} were compacted away before they could be read again"
            if not self._skip_expired:
                raise DataCompactedError(f"{gap}. {COMPACTED}")
        if "key_format" in self._reading:
            left = "the last message of each key decides, and is there or still to come"
        else:
            left = "they are missing in the views from now on"
        _log.error("connector %s: %s; %s", self.name, gap, left)
        return True

    def _kept(self, split: Split, first: Mapping[Place, int]) -> Split | None:
        at = split.payload
        start = first.get((at["topic"], at["partition"]), 0)
        if at["start"] >= min(start, at["end"]):
            return split
        gap = (
            f"offsets {at['start']} to {min(start, at['end'])} of {at['topic']}"
            f"[{at['partition']}] expired before they could be read again"
        )
        if not self._skip_expired:
            raise DataExpiredError(f"{gap}. {EXPIRED}")
        _log.error("connector %s: %s; they are missing in the views from now on", self.name, gap)
        if start >= at["end"]:
            return None
        return replace(split, payload={**at, "start": start}, rows=at["end"] - start)


def _places(read: Mapping[str, _Progress]) -> list[Place]:
    return [(topic, partition) for topic in sorted(read) for partition in sorted(read[topic].next)]


def _topics(config: Section) -> list[str]:
    one, several = config.optional("topic", str), config.optional("topics", list)
    if (one is None) == (several is None):
        raise ConnectorError(
            f"{config.path}: expected one of 'topic', a string, and 'topics', a list of them"
        )
    names = [one] if one is not None else list(several or [])
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise ConnectorError(f"{config.path}.topics: expected a list of different topics, found {several!r}")
    return names


def _partitions(config: Section) -> list[int] | None:
    found = config.optional("partitions", list)
    if found is not None and (not found or not all(type(p) is int and p >= 0 for p in found)):
        raise ConnectorError(f"{config.path}.partitions: expected a list of numbers, found {found!r}")
    return found


def place_of(split: Split) -> tuple[str, int, int]:
    """Topic, partition and offset."""
    at = split.payload
    return at["topic"], at["partition"], at["start"]


_readers: dict[str, RangeReader] = {}
"""One for each cluster stays in a worker from task to task: what comes next is often fetched already."""


def read_kafka(
    payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any], reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of a range of messages."""
    if payload["start"] >= payload["end"]:
        return
    reading = payload[READING]
    cluster = Cluster(reading["options"])
    known = repr(sorted(cluster.options.items()))
    reader = _readers.pop(known, None) or RangeReader(cluster)
    place = payload["topic"], payload["partition"], payload["start"], payload["end"]
    label = f"{payload['topic']}[{payload['partition']}]"

    def skipped(start: int, end: int) -> None:
        _log.error("offsets %d to %d of %s expired before they were read: left out", start, end, label)
        reject(BadRecord(f"{label}, offsets {start} to {end}", "expired before they were read", ""))

    skip = skipped if reading["skip_expired"] else None
    found = reader.read(*place, MAX_BATCH_ROWS, topic_id=payload["id"], skipped=skip)
    for messages in found:
        yield from rows_of(messages, label, reading, schema, defaults, reject)
    _readers[known] = reader  # one that failed is not used again
