"""url_input: from servers with and without ranges, which change, fail, refuse and do not answer."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Input, Split, create_input, read_split
from penstock.errors import ConnectorError, UnreachableError
from penstock.sql import Connector, parse_program

TABLE = parse_program("CREATE TABLE t (id BIGINT NOT NULL, name STRING)").tables[0]
SCHEMA = to_arrow_schema(TABLE.schema, timezone="UTC")


class Site:
    """A web site in this process: its content, how it behaves, and what it was asked."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.ranges = True
        self.validators = True
        self.length = True
        self.status: int | None = None
        self.asked: list[str] = []
        self.cut = False
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.headers.get("Range", "all"))
        data = self.content.get(request.path)
        if self.status or data is None:
            request.send_response(self.status or 404)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        start, end = 0, len(data)
        if span and self.ranges:
            start, end = int(span[1]), min(int(span[2] or end) + 1, end)
            request.send_response(206 if start < len(data) else 416)
            request.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        else:
            request.send_response(200)
        if self.length:
            request.send_header("Content-Length", str(end - start))
        if self.validators:
            request.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
        request.end_headers()
        sent = data[start : end - 3 if self.cut else end]
        try:
            request.wfile.write(sent)
        except ConnectionError:
            pass  # the first request is for everything, and needs only the head of the answer


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


def open_input(url: str, form: dict[str, Any] | None = None, **config: Any) -> Input:
    entry: dict[str, Any] = {"transport": {"name": "url_input", "config": {"path": url, **config}}}
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


def file_of(form: str, count: int, tmp_path: Path) -> bytes:
    path = tmp_path / "file"
    rows = [{"id": i, "name": f"name {i}"} for i in range(count)]
    if form == "csv":
        path.write_text("name,id\n" + "".join(f'"{row["name"]}",{row["id"]}\n' for row in rows))
    elif form == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=300)
    else:
        fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
        with path.open("wb") as file:
            schema = {"type": "record", "name": "r", "fields": fields}
            fastavro.writer(file, schema, rows, sync_interval=2000)
    return path.read_bytes()


def config_of(form: str) -> dict[str, Any]:
    return {"name": form, "config": {"headers": True} if form == "csv" else {}}


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "avro"])
def test_ranges_are_read_by_many_tasks_and_a_position_goes_on(site: Site, form: str, tmp_path: Path) -> None:
    site.content["/a"] = file_of(form, 2000, tmp_path)
    source = open_input(f"{site.url}/a", config_of(form))
    splits = []
    while not source.ended:
        splits += source.poll(300)
        position = json.loads(json.dumps(source.position))
        source = open_input(f"{site.url}/a", config_of(form))
        source.seek(position)
    assert len(splits) > 4
    assert ids(splits) == list(range(2000))


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "avro"])
@pytest.mark.parametrize(("validators", "length"), [(True, True), (False, True), (False, False)])
def test_without_ranges_one_task_reads_everything(
    site: Site, form: str, validators: bool, length: bool, tmp_path: Path
) -> None:
    site.ranges, site.validators, site.length = False, validators, length
    site.content["/a"] = file_of(form, 2000, tmp_path)
    source = open_input(f"{site.url}/a", config_of(form))
    splits = drain(source, 300)
    assert len(splits) == 1
    assert ids(splits) == list(range(2000))
    again = open_input(f"{site.url}/a", config_of(form))
    again.seek(source.position)
    assert again.ended
    site.content["/a"] = file_of(form, 1999, tmp_path)
    with pytest.raises(ConnectorError, match="/a changed after it was first read"):
        ids(splits)


def test_the_server_of_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a\n2,b\n")

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert ids(drain(open_input(f"http://127.0.0.1:{server.server_port}/a.csv"))) == [1, 2]
        server.shutdown()
        thread.join()


def test_local_file_by_its_url(tmp_path: Path) -> None:
    (tmp_path / "a b.csv").write_text("1,a\n")
    source = open_input(f"file://{tmp_path}/a%20b.csv", pause_timeout=5)
    assert ids(drain(source)) == [1]
    again = open_input(f"file://{tmp_path}/a%20b.csv")
    again.seek(source.position)
    assert again.ended
    with pytest.raises(ConnectorError, match=r"connector in: cannot read .*none\.csv: No such file"):
        open_input(f"file://{tmp_path}/none.csv").poll(10)


def test_empty_content_ends(site: Site) -> None:
    site.content["/a.csv"] = b""
    assert drain(open_input(f"{site.url}/a.csv")) == []
    site.ranges = False
    assert drain(open_input(f"{site.url}/a.csv")) == []


@pytest.mark.parametrize("validators", [True, False])
def test_content_that_changed_is_noticed(site: Site, validators: bool) -> None:
    site.validators = validators
    site.content["/a.csv"] = b"1,a\n2,b\n"
    splits = drain(open_input(f"{site.url}/a.csv"))
    site.content["/a.csv"] = b"1,a\n2,c\n3,d\n"
    with pytest.raises(ConnectorError, match=r"/a\.csv changed after it was first read") as caught:
        ids(splits)
    assert not isinstance(caught.value, UnreachableError)
    del site.content["/a.csv"]
    with pytest.raises(ConnectorError, match="404 Not Found: nothing is there"):
        ids(splits)


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_server_in_trouble_is_tried_again(site: Site, status: int) -> None:
    site.content["/a.csv"] = b"1,a\n"
    source = open_input(f"{site.url}/a.csv")
    site.status = status
    with pytest.raises(UnreachableError, match=rf"connector in: {site.url}/a\.csv answers {status}"):
        source.poll(10)
    assert not source.ended
    site.status = None
    splits = source.poll(10)
    site.status = status
    with pytest.raises(UnreachableError):
        ids(splits)
    site.status = None
    assert ids(splits) == [1]


@pytest.mark.parametrize(
    ("status", "said"), [(403, "it may not be read"), (404, "nothing"), (400, "browser")]
)
def test_refusal_is_final(site: Site, status: int, said: str) -> None:
    site.status = status
    with pytest.raises(ConnectorError, match=rf"answers {status} .*{said}") as caught:
        open_input(f"{site.url}/a.csv").poll(10)
    assert not isinstance(caught.value, UnreachableError)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnreachableError, match=rf"127\.0\.0\.1:{port}/a\.csv does not answer: .*refused"):
        open_input(f"http://127.0.0.1:{port}/a.csv").poll(10)


def test_silence_and_broken_connections_are_tried_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.content["/a.csv"] = b"1,a\n2,b\n"
    splits = drain(open_input(f"{site.url}/a.csv"))
    site.cut = True
    with pytest.raises(UnreachableError):
        ids(splits)
    monkeypatch.setattr("penstock.connectors.blobs.http._TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/a.csv"
        with pytest.raises(UnreachableError, match="does not answer: timed out"):
            open_input(url).poll(10)


def test_splits_before_an_error_are_handed_out(site: Site) -> None:
    """They are past the position: a poll that fails must not have taken anything."""
    site.content["/a.csv"] = b"".join(b"%d,a\n" % i for i in range(100_000))
    source = open_input(f"{site.url}/a.csv")
    first = source.poll(1000)
    before = source.position
    site.status = 503
    with pytest.raises(UnreachableError):
        source.poll(1000)
    assert source.position == before
    site.status = None
    assert ids(first + drain(source)) == list(range(100_000))


def test_token_stays_in_the_environment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.content["/a.csv?token=hush"] = b"1,a\n"
    source = open_input(f"{site.url}/a.csv?token=${{env:PENSTOCK_TEST_TOKEN}}")
    with pytest.raises(ConnectorError, match="the environment variable PENSTOCK_TEST_TOKEN is not set"):
        source.poll(10)
    monkeypatch.setenv("PENSTOCK_TEST_TOKEN", "hush")
    splits = source.poll(10)
    assert ids(splits) == [1]
    assert "hush" not in repr(splits)
    assert "hush" not in repr(source.position)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/tmp/a.csv", "expected a URL with http, https or file"),
        ("ftp://host/a.csv", "expected a URL with http, https or file"),
        ("http://me:secret@host/a.csv", "a user in a URL is not supported"),
        ("http://host/a", "the field 'format' is missing"),
    ],
)
def test_wrong_configuration_is_named(url: str, said: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        open_input(url)
    assert said in str(caught.value)
