"""s3_input against a server that speaks S3: objects and prefixes, changes, refusals, and secrets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Input, Split, create_input, read_split
from penstock.errors import ConnectorError, UnreachableError
from penstock.sql import Connector, parse_program

TABLE = parse_program("CREATE TABLE t (id BIGINT NOT NULL, name STRING)").tables[0]
SCHEMA = to_arrow_schema(TABLE.schema, timezone="UTC")
BUCKET = "penstock-test"
SECRET = "only-in-the-environment"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server in a process of its own, with an empty bucket."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            try:
                request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
                urllib.request.urlopen(request, timeout=10).close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, "the server did not start"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)
        yield url
        server.terminate()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PENSTOCK_TEST_ID", "somebody")
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", SECRET)


def put(endpoint: str, key: str, data: bytes) -> None:
    store = S3Store(
        BUCKET,
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="a",
        secret_access_key="b",
        client_options={"allow_http": True},
    )
    obstore.put(store, key, data)


def open_input(endpoint: str, form: dict[str, Any] | None = None, **config: Any) -> Input:
    config = {
        "bucket_name": BUCKET,
        "region": "us-east-1",
        "endpoint_url": endpoint,
        "aws_access_key_id": "${env:PENSTOCK_TEST_ID}",
        "aws_secret_access_key": "${env:PENSTOCK_TEST_SECRET}",
        "max_retries": 0,
        **config,
    }
    config = {name: value for name, value in config.items() if value is not None}
    entry: dict[str, Any] = {"transport": {"name": "s3_input", "config": config}}
    if form is not None:
        entry["format"] = form
    return create_input(Connector("in", entry), TABLE)


def drain(source: Input, max_rows: int = 1000) -> list[Split]:
    splits = []
    while not source.ended:
        splits += source.poll(max_rows)
    return splits


def ids(splits: list[Split]) -> list[int]:
    recorded = [Split(**json.loads(json.dumps(vars(split)))) for split in splits]
    return [
        row["id"] for split in recorded for batch in read_split(split, SCHEMA) for row in batch.to_pylist()
    ]


def lines(first: int, last: int) -> bytes:
    return b"".join(b'{"id": %d, "name": "n"}\n' % i for i in range(first, last))


def test_object_in_ranges_and_from_a_position(endpoint: str) -> None:
    put(endpoint, "one/a b%20c.json", lines(0, 2000))
    source = open_input(endpoint, key="one/a b%20c.json")
    splits = []
    while not source.ended:
        splits += source.poll(300)
        position = json.loads(json.dumps(source.position))
        source = open_input(endpoint, key="one/a b%20c.json")
        source.seek(position)
    assert len(splits) > 4
    assert ids(splits) == list(range(2000))


def test_parquet_in_row_groups(endpoint: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "a", row_group_size=100)
    put(endpoint, "groups.parquet", (tmp_path / "a").read_bytes())
    splits = drain(open_input(endpoint, key="groups.parquet"))
    assert len(splits) == 10
    assert ids(splits) == list(range(1000))
    put(endpoint, "groups.parquet", b"something else")
    with pytest.raises(ConnectorError, match=r"groups\.parquet changed after it was first read"):
        ids(splits)


def test_prefix_may_end_within_a_name(endpoint: str) -> None:
    for key, first in (("many/2024-b", 10), ("many/2024-a", 0), ("many/2024/c", 20), ("many/2023", 90)):
        put(endpoint, key, lines(first, first + 10))
    put(endpoint, "many/2024-empty", b"")
    form = {"name": "json"}
    source = open_input(endpoint, form, prefix="many/2024")
    assert ids(drain(source)) == list(range(30))
    put(endpoint, "many/2024-later", lines(30, 40))
    again = open_input(endpoint, form, prefix="many/2024")
    again.seek(source.position)
    assert again.ended
    assert len(ids(drain(open_input(endpoint, form, prefix="many/")))) == 50


def test_secrets_stay_in_the_environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(endpoint, "a.json", lines(0, 5))
    source = open_input(endpoint, key="a.json")
    splits = drain(source)
    assert SECRET not in json.dumps([vars(split) for split in splits])
    assert SECRET not in json.dumps(source.position)
    monkeypatch.delenv("PENSTOCK_TEST_SECRET")
    with pytest.raises(ConnectorError, match="the environment variable PENSTOCK_TEST_SECRET is not set"):
        ids(splits)


def test_standard_variables_are_used_where_nothing_is_configured(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(endpoint, "a.json", lines(0, 5))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    source = open_input(endpoint, key="a.json", aws_access_key_id=None, aws_secret_access_key=None)
    splits = drain(source)
    assert ids(splits) == [0, 1, 2, 3, 4]
    assert SECRET not in repr(splits)


def test_object_that_changed_is_noticed(endpoint: str) -> None:
    put(endpoint, "changing.json", lines(0, 5))
    source = open_input(endpoint, key="changing.json")
    splits = source.poll(2)
    put(endpoint, "changing.json", lines(5, 10))
    for read in (lambda: ids(splits), lambda: source.poll(10)):
        with pytest.raises(ConnectorError, match=r"changing\.json changed after it was first read") as caught:
            read()
        assert not isinstance(caught.value, UnreachableError)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"key": "none.json"}, "s3://penstock-test/none.json is not there"),
        ({"key": "none.json", "bucket_name": "nobody-has-it"}, "s3://nobody-has-it/none.json is not there"),
        ({"prefix": "none.json", "bucket_name": "nobody-has-it"}, "s3://nobody-has-it at http"),
        ({"prefix": "none.json"}, "has no object whose key starts with 'none.json'"),
        (
            {
                "key": "a.json",
                "no_sign_request": True,
                "aws_access_key_id": None,
                "aws_secret_access_key": None,
            },
            "s3://penstock-test/a.json may not be read: 403 access denied",
        ),
        ({"key": "a//b.json"}, "cannot be read: Could not parse path"),
    ],
)
def test_refusal_is_final(endpoint: str, config: dict[str, Any], said: str) -> None:
    put(endpoint, "a.json", lines(0, 5))
    with pytest.raises(ConnectorError) as caught:
        open_input(endpoint, **config).poll(10)
    assert said in str(caught.value)
    assert not isinstance(caught.value, UnreachableError)
    assert "Debug source" not in str(caught.value)


def test_nobody_answers(endpoint: str) -> None:
    source = open_input(f"http://127.0.0.1:{free_port()}", key="a.json")
    with pytest.raises(UnreachableError, match=r"connector in: s3://penstock-test/a\.json cannot be reached"):
        source.poll(10)
    source = open_input(f"http://127.0.0.1:{free_port()}", prefix="a.json")
    with pytest.raises(UnreachableError, match=r"connector in: s3://penstock-test at .* cannot be reached"):
        source.poll(10)
    put(endpoint, "a.json", lines(0, 5))
    (split,) = drain(open_input(endpoint, key="a.json"))
    bucket = {**split.payload["bucket"], "endpoint_url": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(UnreachableError, match=r"s3://penstock-test/a\.json cannot be reached"):
        ids([Split(split.source, {**split.payload, "bucket": bucket})])


@pytest.mark.parametrize(
    ("status", "again"), [(500, True), (503, True), (429, True), (401, False), (400, False), (301, False)]
)
def test_only_trouble_is_tried_again(status: int, again: bool) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(ConnectorError) as caught:
                open_input(f"http://127.0.0.1:{server.server_port}", key="a.json").poll(10)
            assert isinstance(caught.value, UnreachableError) is again
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"key": "a.json", "aws_secret_access_key": "hunter2"}, "write ${env:NAME} with its name here"),
        ({"key": "a.json", "aws_secret_access_key": None}, "expected both 'aws_access_key_id' and"),
        ({}, "expected one of 'key' and 'prefix'"),
        ({"key": "a.json", "prefix": "a"}, "expected one of 'key' and 'prefix'"),
        ({"key": "a.json", "region": None}, "the field 'region' is missing"),
        ({"prefix": "a"}, "the field 'format' is missing"),
        ({"key": "a.json", "bucket": "b"}, "unknown field 'bucket'; did you mean 'bucket_name'?"),
    ],
)
def test_wrong_configuration_is_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        open_input("http://127.0.0.1", **config)
    assert said in str(caught.value)
    assert "connector in" in str(caught.value)
    assert "hunter2" not in str(caught.value)
