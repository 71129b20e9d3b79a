"""What is wrong with the settings of an object store is said before anything is copied."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import SyncError
from penstock.sync.config import SyncConfig

UUID = "0192f3c0-0000-7000-8000-000000000000"


def test_defaults_are_those_of_the_reference() -> None:
    config = SyncConfig.of({"bucket": "b"})
    assert (config.pull_interval, config.push_interval) == (10, None)
    assert (config.retention_min_count, config.retention_min_age) == (10, 30)
    assert (config.uploads, config.lookups, config.upload_parts, config.streams) == (20, 20, 10, 10)
    assert config.large == 100 << 20
    assert config.wanted is None
    assert not config.fail_if_no_checkpoint


def test_what_is_given_is_taken() -> None:
    config = SyncConfig.of(
        {
            "bucket": "/b/folder/inner/",
            "read_bucket": "b/other",
            "endpoint": "http://localhost:9000",
            "region": "eu-west-1",
            "provider": "Minio",
            "access_key": "${env:KEY}",
            "secret_key": "${secret:key}",
            "start_from_checkpoint": UUID,
            "fail_if_no_checkpoint": True,
            "standby": False,
            "pull_interval": 3,
            "push_interval": 4,
            "retention_min_count": 0,
            "retention_min_age": 1,
            "transfers": 2,
            "checkers": 3,
            "upload_concurrency": 4,
            "multi_thread_cutoff": "1.5k",
            "multi_thread_streams": 5,
            "optimize_download_resources": False,
            "ignore_checksum": None,
            "flags": [],
        }
    )
    assert config.bucket == "b/folder/inner"
    assert config.wanted == UUID
    assert (config.uploads, config.downloads, config.lookups) == (2, 2, 3)
    assert (config.large, config.streams) == (1536, 5)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("b", "expected an object"),
        ({}, "sync.bucket: Field required"),
        ({"bucket": ""}, "is no bucket"),
        ({"bucket": "s3://b"}, "without a scheme"),
        ({"bucket": "b/../c"}, "is no bucket"),
        ({"bucket": "b//c"}, "is no bucket"),
        ({"bucket": "b", "buckets": 1}, "sync.buckets: Extra inputs are not permitted"),
        ({"bucket": "b", "standby": True}, "initial=standby instead"),
        ({"bucket": "b", "endpoint": "localhost:9000"}, "sync.endpoint: expected a URL"),
        ({"bucket": "b", "access_key": "k"}, "secret_key is missing"),
        ({"bucket": "b", "secret_key": "k"}, "access_key is missing"),
        ({"bucket": "b", "start_from_checkpoint": "newest"}, "expected 'latest' or the UUID"),
        ({"bucket": "b", "fail_if_no_checkpoint": True}, "no effect without start_from_checkpoint"),
        ({"bucket": "b", "read_bucket": "c"}, "no effect without start_from_checkpoint"),
        (
            {"bucket": "b", "read_bucket": "/b/", "start_from_checkpoint": "latest"},
            "another place than bucket",
        ),
        ({"bucket": "b", "pull_interval": 0}, "sync.pull_interval"),
        ({"bucket": "b", "push_interval": 0}, "sync.push_interval"),
        ({"bucket": "b", "retention_min_count": 0, "retention_min_age": 0}, "cannot both be 0"),
        ({"bucket": "b", "retention_min_age": -1}, "sync.retention_min_age"),
        ({"bucket": "b", "multi_thread_cutoff": "100 MB"}, "expected a size such as '100M'"),
        ({"bucket": "b", "ignore_checksum": True}, "whatever is copied is checked"),
        ({"bucket": "b", "flags": ["--fast"]}, "rclone, which is not used"),
        ({"bucket": "b", "transfers": 0}, "sync.transfers"),
    ],
)
def test_what_is_wrong_is_refused_by_name(given: Any, text: str) -> None:
    with pytest.raises(SyncError) as caught:
        SyncConfig.of(given)
    assert "storage.backend.config.sync" in str(caught.value)
    assert text in str(caught.value)


def test_a_refusal_has_no_secret() -> None:
    with pytest.raises(SyncError) as caught:
        SyncConfig.of({"bucket": "b", "secret_key": "hunter2", "access_key": ["hunter3"]})
    assert "hunter" not in str(caught.value)
