"""Connectors are imported when a program names them, by the names that the registry has for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.connectors import registry
from penstock.connectors.input import arrow, datagen, delta, file, kafka, s3, shard, url
from penstock.connectors.interface import Input, Output


@pytest.mark.parametrize("name", registry.INPUTS)
def test_inputs(name: str) -> None:
    assert issubclass(registry._load(registry.INPUTS[name]), Input)


@pytest.mark.parametrize("name", registry.OUTPUTS)
def test_outputs(name: str) -> None:
    assert issubclass(registry._load(registry.OUTPUTS[name]), Output)


def test_readers() -> None:
    sources = {module.SOURCE for module in (arrow, datagen, delta, file, kafka, s3, shard, url)}
    sources |= {arrow.STREAM_SOURCE, arrow.INLINE_SOURCE, arrow.SERVED_SOURCE}
    assert set(registry.READERS) == sources
    assert all(callable(registry._load(path)) for path in registry.READERS.values())


def test_a_pipeline_does_not_import_clients_it_has_no_use_for() -> None:
    clients = ("confluent_kafka", "deltalake", "httpx", "psycopg")
    code = f"import sys, penstock; penstock.Pipeline; print([m for m in {clients} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
