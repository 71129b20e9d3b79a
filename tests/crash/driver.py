"""One life of a pipeline: recover, say so, wait for a word, and work until killed or done.

Arguments: storage, directory of sinks, `automatic` or `explicit`, last transaction, configuration, and
perhaps the address of a PostgreSQL server.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import penstock
from penstock.errors import EvaluationError
from tests.crash.workload import Mode, fails, program, rolled_back, rows_of

CHECKPOINT_EVERY = 7


def say(pipeline: penstock.Pipeline) -> None:
    """Print what can be seen from outside."""
    pipeline.flush()
    stats = pipeline.stats()
    sums = pipeline.query("SELECT g, c, s FROM sums ORDER BY g").to_pylist()
    print(
        json.dumps(
            {
                "last": stats["transactions"],
                "open": pipeline.open_transaction,
                "state": stats["state"],
                "sums": [[row["g"], row["c"], row["s"]] for row in sums],
            }
        ),
        flush=True,
    )


def send(pipeline: penstock.Pipeline, number: int, step: int, mode: Mode) -> None:
    inserts, deletes = rows_of(number, mode)[step]
    with pipeline.transaction():
        pipeline.insert("t", inserts)
        pipeline.delete("t", [{"id": key} for key in deletes])


def automatic(pipeline: penstock.Pipeline, number: int, mode: Mode) -> None:
    failed = pipeline.state == "Paused"  # it came back so
    try:
        if not failed:
            send(pipeline, number, 0, mode)
            pipeline.flush()
    except EvaluationError:
        failed = True
    assert failed == fails(number, mode), number
    if failed:
        pipeline.resume(skip_transaction=number)


def explicit(pipeline: penstock.Pipeline, number: int, mode: Mode) -> None:
    if pipeline.open_transaction is None:
        assert pipeline.start_transaction() == number
    done = pipeline.stats()["transaction"]["steps"]
    for step in range(done, mode.steps(number)):
        send(pipeline, number, step, mode)
        pipeline.flush()
    end = pipeline.rollback_transaction if rolled_back(number, mode) else pipeline.commit_transaction
    assert end(number) == number


def main(storage: str, sinks: str, kind: str, last: str, config: str, postgres: str | None = None) -> None:
    mode = Mode(kind)
    text = program(Path(sinks), postgres)
    pipeline = penstock.Pipeline("crash", program=text, storage=storage, config=json.loads(config))
    pipeline.start()
    if pipeline.state != "Paused":
        say(pipeline)
        sys.stdin.readline()
    for number in range(pipeline.stats()["transactions"] + 1, int(last) + 1):
        (explicit if mode.explicit else automatic)(pipeline, number, mode)
        if number % CHECKPOINT_EVERY == 0:
            pipeline.flush()
            pipeline.checkpoint()
    say(pipeline)
    pipeline.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
