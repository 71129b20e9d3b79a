"""Secrets are read where they are needed, and shown nowhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock import references
from penstock.errors import ConnectorError, ProgramError
from penstock.service.errors import error_body
from penstock.service.runner.confinement import refuse_paths, resolve_references
from penstock.sql import parse_program


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(references, "_resolved", set())
    monkeypatch.setenv(references.SECRETS, str(tmp_path))


def program(transport: str, **config: Any) -> str:
    connector = json.dumps([{"name": "c", "transport": {"name": transport, "config": config}}])
    return f"CREATE TABLE t (id INT) WITH ('connectors' = '{connector}');"


def test_a_secret_is_the_content_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "pg.password").write_text("hunter2 and more\n")
    text = "postgres://u:${secret:pg.password}@h/db"
    assert references.resolved(text) == "postgres://u:hunter2 and more@h/db"
    assert references.redacted("refused: hunter2 and more!") == "refused: ***!"
    said = error_body("X", "no hunter2 and more", {"log": ["hunter2 and more"], "n": 1})
    assert said == {"message": "no ***", "error_code": "X", "details": {"log": ["***"], "n": 1}}


@pytest.mark.parametrize("name", ["../token", "/etc/passwd", ".hidden", "a/b", ""])
def test_no_other_file_is_read(name: str) -> None:
    text = f"${{secret:{name}}}"
    assert references.resolved(text) == text
    assert not references.has_reference(text)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse_program(program("url_input", path="http://x/${secret:token}"))
    with pytest.raises(ConnectorError, match="the secret token cannot be read"):
        resolve_references(parsed)
    (tmp_path / "token").write_text("t0ken")
    resolve_references(parsed)
    assert references.redacted("GET http://x/t0ken") == "GET http://x/***"
    monkeypatch.delenv(references.SECRETS)
    with pytest.raises(ConnectorError, match=references.SECRETS):
        references.resolved("${secret:token}")


@pytest.mark.parametrize(
    ("transport", "config", "allowed"),
    [
        ("file_input", {"path": "{root}/in/a.csv"}, True),
        ("file_input", {"path": "file://{root}/in/*.csv"}, True),
        ("file_input", {"path": "{root}/../etc/passwd"}, False),
        ("file_input", {"path": "{root}/*/../../../etc/passwd"}, False),
        ("file_input", {"path": "/etc/passwd"}, False),
        ("file_input", {"path": "/etc/*"}, False),
        ("file_input", {"path": "{root}/out/x"}, False),  # a symbolic link leads out
        ("delta_table_input", {"uri": "/var/lib"}, False),
        ("delta_table_input", {"uri": "s3://bucket/table"}, True),
        ("url_input", {"path": "http://host/etc/passwd"}, True),
        ("url_input", {"path": "file:///etc/passwd"}, False),
        ("delta_table_input", {"uri": "FILE:///etc/x"}, False),
        ("postgres_output", {"uri": "postgres://h/d", "ssl_ca_location": "/etc/shadow"}, False),
        ("postgres_output", {"uri": "postgres://h/d?sslkey=/etc/shadow"}, False),
        ("kafka_input", {"ssl.key.location": "/etc/shadow"}, False),
        ("kafka_input", {"ssl.key.location": "a:b/../../../etc/shadow"}, False),
        ("kafka_input", {"ssl.ca.location": "{root}/in/ca.pem"}, True),
        ("shard_output", {"uri": "/etc/x"}, False),
        ("shard_output", {"uri": "{root}/in/shards"}, True),
        ("shard_output", {"uri": "s3://b", "log_uri": "sqlite:////etc/x.db"}, False),
        ("shard_output", {"uri": "s3://b", "log_uri": "sqlite:///x.db"}, False),  # where the service runs
        ("shard_output", {"uri": "s3://b", "log_uri": "sqlite:///{root}/in/x.db"}, True),
        (
            "kafka_output",
            {"fault_tolerance": {"producer_options": {"ssl.key.location": "/etc/shadow"}}},
            False,
        ),
    ],
)
def test_files_are_where_they_may_be(
    transport: str, config: dict[str, Any], allowed: bool, tmp_path: Path
) -> None:
    root = tmp_path / "files"
    (root / "in").mkdir(parents=True)
    os.symlink("/", root / "out")
    given = json.loads(json.dumps(config).replace("{root}", str(root)))
    try:
        parsed = parse_program(program(transport, **given))
    except ProgramError:
        pytest.fail("the program itself is right")
    refuse_paths(parsed, None)
    if allowed:
        refuse_paths(parsed, [str(root)])
    else:
        with pytest.raises(ConnectorError, match="outside of what this service allows"):
            refuse_paths(parsed, [str(root)])
