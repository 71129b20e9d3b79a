"""A failover, rehearsed: see fail-over.md beside this file.

python docs/how-to/failover_drill.py [--endpoint http://localhost:9000 --bucket my-bucket/drill]

Without an endpoint it starts a server that speaks S3 in this process (the package moto, for tests only).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import penstock
from penstock.errors import FencedError

SQL = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, amount BIGINT) WITH ('connectors' = '[{{
  "name": "arriving",
  "transport": {{"name": "file_input", "config": {{"path": "{orders}", "follow": true}}}},
  "format": {{"name": "json", "config": {{"update_format": "raw"}}}}
}}]');
CREATE MATERIALIZED VIEW large WITH ('connectors' = '[{{
  "name": "delivered",
  "transport": {{"name": "file_output", "config": {{"path": "{sink}"}}}},
  "format": {{"name": "json"}}
}}]') AS SELECT id, region, amount FROM orders WHERE amount >= 50;
"""


def pipeline(place: Path, storage: str, sync: dict[str, Any]) -> penstock.Pipeline:
    """The same program with the same inputs and outputs, wherever it runs."""
    return penstock.Pipeline(
        "drill" if storage == "primary" else f"drill-{storage}",
        program=SQL.format(orders=place / "orders.jsonl", sink=place / "delivered.jsonl"),
        storage=place / storage,
        config={
            "workers": 2,
            "fault_tolerance": {"checkpoint_interval_secs": 1},
            "storage": {"backend": {"name": "file", "config": {"sync": sync}}},
        },
    )


def run_primary(place: Path, sync: dict[str, Any]) -> None:
    """What the machine does that will be lost."""
    with pipeline(place, "primary", sync) as p:
        print("running", flush=True)
        while p.state == "Running":
            time.sleep(0.2)
        p.kill()


class Load(threading.Thread):
    """Orders that arrive all the time."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.ended = threading.Event()
        self._path = path

    def run(self) -> None:
        with self._path.open("a") as file:
            while not self.ended.wait(0.05):
                for _ in range(5):
                    self.count += 1
                    order = {"id": self.count, "region": f"r{self.count % 7}", "amount": self.count % 100}
                    file.write(json.dumps(order) + "\n")
                file.flush()


def delivered(place: Path) -> list[int]:
    """The orders in the sink, as often as they are there."""
    text = (place / "delivered.jsonl").read_text()
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    assert all(line["_change_type"] == "insert" for line in lines), "no order ever leaves the view"
    return [line["id"] for line in lines]


def until(what: str, condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"error: {what} did not happen within {seconds:.0f} seconds")
        time.sleep(0.1)


def told(text: str, *values: object) -> None:
    print(f"{text:<58}", *values, flush=True)


def drill(place: Path, sync: dict[str, Any]) -> None:
    load = Load(place / "orders.jsonl")
    load.start()
    command = [sys.executable, __file__, "--primary", str(place), "--sync", json.dumps(sync)]
    primary = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert primary.stdout is not None
    assert primary.stdout.readline() == "running\n"
    told("the primary runs")
    standby = pipeline(place, "standby", {**sync, "start_from_checkpoint": "latest", "pull_interval": 1})
    standby.start(standby=True)
    until("a checkpoint at the standby", lambda: (standby.stats()["standby"]["transaction"] or 0) > 3)
    until("a warm standby", lambda: standby.stats()["standby"]["warm"])
    until("an order in the sink", lambda: (place / "delivered.jsonl").exists() and delivered(place))
    told("the standby follows; last transaction", standby.stats()["standby"]["transaction"])

    os.killpg(primary.pid, signal.SIGKILL)
    primary.wait()
    (place / "primary").rename(place / "lost")  # nobody can read it any more
    told("the primary is lost; orders in the sink", len(delivered(place)))

    began = time.monotonic()
    standby.activate()
    told("the standby runs; seconds from the activation", f"{time.monotonic() - began:.1f}")
    time.sleep(5)
    load.ended.set()
    load.join()
    wanted = [n for n in range(1, load.count + 1) if n % 100 >= 50]
    until("every order in the sink", lambda: len(delivered(place)) >= len(wanted))
    assert sorted(delivered(place)) == wanted, "an order is missing or twice in the sink"
    told("every order is in the sink exactly once:", len(wanted))

    (place / "lost").rename(place / "primary")
    try:
        pipeline(place, "primary", sync).start()
        raise SystemExit("error: the old primary was started")
    except FencedError as error:
        told("the old primary, revived, is refused:", error.code)
    standby.stop()
    assert sorted(delivered(place)) == wanted, "an order is missing or twice in the sink"


def started_store(bucket: str) -> str:
    """The URL of a server in this process, with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{url}/{bucket}", method="PUT")).close()
    return url


def main() -> None:
    parser = argparse.ArgumentParser(description="A failover, rehearsed.")
    parser.add_argument("--endpoint", help="URL of an object store; without it, one is started here")
    parser.add_argument("--bucket", default="penstock-drill/drill", help="bucket, and perhaps a folder")
    parser.add_argument("--primary", help=argparse.SUPPRESS)
    parser.add_argument("--sync", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.primary is not None:
        run_primary(Path(given.primary), json.loads(given.sync))
        return
    sync = {"bucket": given.bucket, "endpoint": given.endpoint, "push_interval": 2}
    if given.endpoint is None:
        url = started_store(given.bucket.partition("/")[0])
        sync |= {"endpoint": url, "access_key": "any", "secret_key": "any"}
    with tempfile.TemporaryDirectory(prefix="penstock-drill-") as directory:
        drill(Path(directory), sync)


if __name__ == "__main__":
    main()
