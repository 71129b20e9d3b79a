"""Whoever is not meant, or does not fit, is refused by name, before anything is done."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import penstock
from penstock._version import __version__
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import HostError, HostLostError, StateError
from penstock.hosts.coordinator import Coordinator
from penstock.hosts.messages import CheckIn, HostIndex, Membership
from penstock.hosts.process import Options
from penstock.trace.files import UnseenFiles
from tests.hosts.running import FIRST, PIPELINE, RUN, Alone, coordinating, hosting, wait_until
from tests.stores import begin_journal, saved

# -- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "count"), [(-1, 2), (2, 2), (7, 2), (0, 0), (0, -1)])
def test_an_index_that_cannot_be_is_not_constructed(index: int, count: int) -> None:
    with pytest.raises(HostError):
        HostIndex(index, count)


def test_a_host_with_such_an_index_is_not_made(tmp_path: Path) -> None:
    from penstock.hosts.process import Host

    with pytest.raises(HostError, match="there is no host 2 of 2"):
        Host(Options(2, str(tmp_path), tmp_path / "host", count=2))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", ""])
def test_a_coordinator_has_an_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(HostError, match="give one"):
        Coordinator(tmp_path, PIPELINE, 2, 1, address)


def test_an_address_that_this_machine_does_not_have(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, PIPELINE, 2, 1, "192.0.2.1")
    with pytest.raises(HostError, match=r"cannot listen on 192\.0\.2\.1"):
        coordinator.open("spark://127.0.0.1:7077")
    coordinator.close()


# -- requests to a host ---------------------------------------------------------------------------


def test_a_host_that_has_not_checked_in(tmp_path: Path) -> None:
    alone = Alone(tmp_path / "host")
    try:
        with pytest.raises(HostLostError, match="has not checked in"):
            alone.agent.status()
    finally:
        alone.close()


def test_a_request_without_a_token(alone: Alone) -> None:
    answer = httpx.get(f"{alone.url}/status", headers=dict(alone.membership.headers()))
    assert (answer.status_code, answer.json()["error_code"]) == (401, "Unauthorized")
    assert "carries no token" in answer.json()["message"]


@pytest.mark.parametrize("token", ["x", "wrong", "ümläut"])
def test_a_request_with_a_wrong_token(alone: Alone, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}".encode(), **alone.membership.headers()}
    answer = httpx.get(f"{alone.url}/status", headers=headers)
    assert answer.status_code == 401
    assert "the token of the request is not that of incarnation" in answer.json()["message"]


def test_an_old_token_after_a_new_incarnation(alone: Alone) -> None:
    alone.duty.take(replace(alone.membership, incarnation="second"), "new token")
    with pytest.raises(HostError, match="not that of incarnation second") as raised:
        alone.agent.remove([("view-a", FIRST)])
    assert alone.membership.incarnation in str(raised.value)
    assert not isinstance(raised.value, HostLostError)


@pytest.mark.parametrize(
    ("change", "header", "given", "own"),
    [
        ({"pipeline": "other"}, "Penstock-Pipeline", "other", PIPELINE),
        ({"incarnation": "other"}, "Penstock-Incarnation", "other", None),
        ({"host": HostIndex(0, 2)}, "Penstock-Host", "0", "1"),
        ({"host": HostIndex(1, 3)}, "Penstock-Hosts", "3", "2"),
    ],
)
def test_a_request_that_is_meant_for_another(
    alone: Alone, change: dict[str, Any], header: str, given: str, own: str | None
) -> None:
    """Both values are in the text, and nothing is done."""
    content = alone.put("view-a", FIRST, b"rows")
    agent = alone.client(alone.token, replace(alone.membership, **change))
    for ask in (
        lambda: agent.sweep(()),
        lambda: agent.sync({"view-a": {FIRST: content}}),
        lambda: agent.fetch("view-a", FIRST, content, alone.directory / "copy.arrow"),
        agent.over,
    ):
        with pytest.raises(HostError) as raised:
            ask()
        said = f"{header}: the request says {given!r}, here it is {own or alone.membership.incarnation!r}"
        assert said in str(raised.value)
    assert alone.path("view-a", FIRST).exists()
    agent.close()


def test_headers_that_are_missing(alone: Alone) -> None:
    answer = httpx.get(f"{alone.url}/status", headers={"Authorization": f"Bearer {alone.token}"})
    assert answer.status_code == 400
    assert set(answer.json()["details"]) == set(alone.membership.headers())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/batches/sync", {}),
        ("/batches/sync", {"batches": {"view-a": {FIRST: {"bytes": "many"}}}}),
        ("/batches/check", {"batches": {}}),
        ("/batches/sweep", []),
        ("/nothing", {}),
    ],
)
def test_a_request_that_makes_no_sense(alone: Alone, path: str, body: Any) -> None:
    headers = {"Authorization": f"Bearer {alone.token}", **alone.membership.headers()}
    answer = httpx.post(alone.url + path, json=body, headers=headers)
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"message", "error_code", "details"}


# -- checking in ----------------------------------------------------------------------------------

STRANGER = CheckIn(
    version=__version__,
    python=".".join(str(part) for part in __import__("sys").version_info[:3]),
    index=1,
    address="127.0.0.3",
    url="http://127.0.0.3:9",
    storage="s1",
    process="p1",
)


def check_in(coordinator: Coordinator, said: CheckIn, secret: str | None = None) -> httpx.Response:
    place = json.loads((coordinator.directory / "coordinator.json").read_text())
    return httpx.post(
        f"{place['url']}/hosts/check-in",
        json=asdict(said),
        headers={"Authorization": f"Bearer {place['secret'] if secret is None else secret}".encode()},
    )


@pytest.mark.parametrize(
    ("change", "status", "code", "values"),
    [
        ({"index": 2}, 400, "NoSuchHost", ["host 2", "2 hosts"]),
        ({"index": -1}, 400, "NoSuchHost", ["host -1", "2 hosts"]),
        ({"count": 3}, 400, "OtherCount", ["one of 3 hosts", "has 2"]),
        ({"pipeline": "ffff"}, 409, "OtherPipeline", ["pipeline ffff", f"pipeline {PIPELINE}"]),
        ({"version": "0.0.9"}, 409, "OtherVersion", ["Penstock 0.0.9", __version__]),
        ({"python": "3.9.1"}, 409, "OtherPython", ["3.9.1", STRANGER.python]),
        ({"index": "x"}, 400, "InvalidRequest", ["index"]),
    ],
)
def test_a_host_that_does_not_fit(
    tmp_path: Path, change: dict[str, Any], status: int, code: str, values: list[str]
) -> None:
    with coordinating(tmp_path / "shop") as coordinator:
        answer = check_in(coordinator, replace(STRANGER, **change))
        assert (answer.status_code, answer.json()["error_code"]) == (status, code)
        for value in values:
            assert value in answer.json()["message"]
        assert not any(host["in"] for host in coordinator.stats()["hosts"])


@pytest.mark.parametrize("secret", ["x", "wröng"])
def test_a_host_that_does_not_know_the_secret(tmp_path: Path, secret: str) -> None:
    with coordinating(tmp_path / "shop") as coordinator:
        answer = check_in(coordinator, STRANGER, secret)
        assert answer.status_code == 401
        assert "hosts.secret" in answer.json()["message"]
        assert coordinator.token not in answer.text


def test_a_second_host_with_the_index_of_one_that_lives(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop") as coordinator:
        assert check_in(coordinator, STRANGER).status_code == 200
        second = replace(STRANGER, address="127.0.0.4", storage="s2", process="p2")
        answer = check_in(coordinator, second)
        assert (answer.status_code, answer.json()["error_code"]) == (409, "IndexTaken")
        for value in ("host 1 is 127.0.0.3 already", "127.0.0.4", "s1", "s2"):
            assert value in answer.json()["message"]


def test_a_host_that_is_started_again_takes_its_index(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop") as coordinator:
        assert check_in(coordinator, STRANGER).status_code == 200
        again = replace(STRANGER, url="http://127.0.0.3:10", process="p2")
        assert check_in(coordinator, again).status_code == 200
        assert coordinator.agent(1).url == "http://127.0.0.3:10"


def test_of_a_storage_and_its_copy_only_one_is_the_host(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop") as coordinator:
        check_in(coordinator, STRANGER)
        check_in(coordinator, replace(STRANGER, process="p2"))
        answer = check_in(coordinator, STRANGER)
        assert (answer.status_code, answer.json()["error_code"]) == (409, "Replaced")


def test_a_storage_that_is_another_hosts(tmp_path: Path) -> None:
    with coordinating(tmp_path / "shop") as coordinator:
        check_in(coordinator, STRANGER)
        answer = check_in(coordinator, replace(STRANGER, index=0))
        assert (answer.status_code, answer.json()["error_code"]) == (409, "OtherIndex")
        assert "that of host 1; it is started as host 0" in answer.json()["message"]


def test_a_swapped_index_is_refused_by_the_host_itself(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    with coordinating(shop) as coordinator:
        with hosting(Options(0, str(shop), tmp_path / "host-0")):
            wait_until(lambda: coordinator.stats()["hosts"][0]["in"])
        with hosting(Options(1, str(shop), tmp_path / "host-0")) as swapped:
            assert "is that of host 0; this is started as host 1" in swapped.refusal()


def test_a_host_of_another_pipeline_ends_with_the_reason(tmp_path: Path) -> None:
    with (
        coordinating(tmp_path / "shop") as coordinator,
        hosting(Options(1, str(tmp_path / "shop"), tmp_path / "host")),
    ):
        wait_until(lambda: coordinator.stats()["hosts"][1]["in"])
    with (
        coordinating(tmp_path / "other", pipeline="ffff"),
        hosting(Options(1, str(tmp_path / "other"), tmp_path / "host")) as host,
    ):
        refusal = host.refusal()
    assert f"belongs to pipeline {PIPELINE}, but this is pipeline ffff" in refusal


def test_a_wrong_count_ends_a_host(tmp_path: Path) -> None:
    with (
        coordinating(tmp_path / "shop"),
        hosting(Options(1, str(tmp_path / "shop"), tmp_path / "host", count=3)) as host,
    ):
        assert "one of 3 hosts, but this pipeline has 2" in host.refusal()


def test_the_storage_of_a_host_is_its_own(tmp_path: Path) -> None:
    """Neither another process's, nor a pipeline's."""
    options = Options(1, str(tmp_path / "shop"), tmp_path / "host")
    with hosting(options) as first:
        wait_until(lambda: first.has_said("Waiting for the coordinator"))
        with hosting(options) as second:
            assert "is in use by process" in second.refusal()
            assert isinstance(second.error, StateError)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "catalog.json").write_text("{}")
    with hosting(replace(options, storage=tmp_path / "shop")) as third:
        assert "is the storage of a pipeline" in third.refusal()


def test_a_url_with_tls_is_refused(tmp_path: Path) -> None:
    """It would look safe, and it is not."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    with hosting(Options(1, "https://127.0.0.1:9", tmp_path / "host", secret_file=secret)) as host:
        assert "https://127.0.0.1:9: a coordinator speaks http:// and no TLS" in host.refusal()


@pytest.mark.parametrize("act", ["sync", "remove", "discard", "sweep"])
def test_a_request_that_waited_while_the_host_joined_another_run(alone: Alone, act: str) -> None:
    """It is refused when its turn comes, for the files are those of the next run by then."""
    content = alone.put("view-a", FIRST, b"rows")
    asks: dict[str, Any] = {
        "sync": lambda: alone.agent.sync({"view-a": {FIRST: content}}),
        "remove": lambda: alone.agent.remove([("view-a", FIRST)]),
        "discard": lambda: alone.agent.discard(1, RUN),
        "sweep": lambda: alone.agent.sweep(()),
    }
    with ThreadPoolExecutor(1) as pool:
        with alone.duty.changing:
            asked = pool.submit(asks[act])
            wait_until(lambda: alone.waiting, "that the request waits")
            alone.duty._member = replace(alone.membership, incarnation="second"), "new token"
        with pytest.raises(HostError, match="not that of incarnation second"):
            asked.result()
    assert alone.path("view-a", FIRST).exists()


def test_a_url_needs_a_secret(tmp_path: Path) -> None:
    with hosting(Options(1, "http://127.0.0.1:9", tmp_path / "host")) as host:
        assert "--secret-file" in host.refusal()


@pytest.mark.parametrize(
    ("config", "there"), [({"hosts": 2}, "'hosts': 3"), ({}, "'hosts': 3"), ({"hosts": 3}, "without 'hosts'")]
)
def test_another_number_of_hosts_is_refused_before_they_are_waited_for(
    tmp_path: Path, config: dict[str, int], there: str
) -> None:
    begin_journal(tmp_path, 0)
    (tmp_path / "batches").mkdir()
    store = CheckpointStore(tmp_path)
    assert store.read() is None
    if there != "without 'hosts'":
        store.files = UnseenFiles(tmp_path / "batches", 3)
    store.begin("p", "owner", saved(0))
    pipeline = penstock.Pipeline("p", "CREATE TABLE t (id INT);", storage=tmp_path, config=config)
    with pytest.raises(StateError, match=f"has its batches on .*{there}"):
        pipeline.start()
    assert not (tmp_path / "hosts.secret").exists(), "no coordinator was there"


def test_a_membership_is_what_a_host_is_asked_as(alone: Alone) -> None:
    assert (
        alone.membership.headers()
        == Membership(PIPELINE, alone.membership.incarnation, HostIndex(1, 2)).headers()
    )
