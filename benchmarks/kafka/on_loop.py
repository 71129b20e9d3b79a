"""A plain loop in one Python process: a consumer, `json.loads` and a dict. Nothing survives its end.

It is what reading the messages costs at least in Python, and the latency of the broker itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from benchmarks.kafka.messages import PARTITIONS, Row
from benchmarks.kafka.system import serve

BATCH = 10_000


class Loop:
    """The `System` without an engine."""

    def __init__(self, address: str, directory: Path) -> None:  # it keeps nothing
        self._address = address

    @contextmanager
    def ingested(self, topic: str, count: int) -> Iterator[list[Row]]:
        consumer = self._consumer(topic)
        view: dict[int, Row] = {}
        left = count
        while left:
            messages = consumer.consume(min(BATCH, left), 1)  # for no more than there are: it would wait
            for message in messages:
                _add(view, message)
            left -= len(messages)
        yield sorted(view.values())
        consumer.close()

    def follow(self, source: str, sink: str) -> None:
        consumer = self._consumer(source)
        producer = Producer({"bootstrap.servers": self._address, "linger.ms": 0})
        view: dict[int, Row] = {}
        while True:
            message = consumer.poll(1)
            if message is not None:
                row = dict(zip(("kind", "n", "total"), _add(view, message), strict=True))
                producer.produce(sink, json.dumps(row))
            producer.poll(0)

    def _consumer(self, topic: str) -> Consumer:
        consumer = Consumer(
            {"bootstrap.servers": self._address, "group.id": "loop", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        return consumer


def _add(view: dict[int, Row], message: Message) -> Row:
    if message.error() is not None:
        raise KafkaException(message.error())
    content = json.loads(message.value())
    kind = content["kind"]
    _, count, total = view.get(kind, (kind, 0, 0))
    view[kind] = kind, count + 1, total + content["amount"]
    return view[kind]


if __name__ == "__main__":
    serve(Loop)
