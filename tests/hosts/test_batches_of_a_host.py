"""A host serves its batch files, makes them durable, looks at them and deletes them, as it is told."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from penstock.errors import DamagedError, HostError, HostLostError, StorageError
from penstock.hosts import client
from penstock.storage.files import Content
from tests.disks import Act, FailingDisk, RecordingDisk, using
from tests.hosts.running import FIRST, OTHER_RUN, RUN, SECOND, Alone

LARGE = bytes(range(256)) * 20_000


# -- fetching -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"rows", LARGE], ids=["empty", "small", "large"])
def test_a_batch_is_fetched(alone: Alone, tmp_path: Path, data: bytes) -> None:
    content = alone.put("view-a", FIRST, data)
    target = tmp_path / "here" / "view-a" / f"{FIRST}.arrow"
    alone.agent.fetch("view-a", FIRST, content, target)
    assert target.read_bytes() == data
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="flipped"),
        pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
        pytest.param(lambda data: data + b"more", id="longer"),
        pytest.param(lambda data: b"", id="empty"),
    ],
)
def test_a_damaged_batch_never_gets_its_name(alone: Alone, tmp_path: Path, spoil: object) -> None:
    content = alone.put("view-a", FIRST, LARGE)
    alone.path("view-a", FIRST).write_bytes(spoil(LARGE))  # type: ignore[operator]
    target = tmp_path / "here" / f"{FIRST}.arrow"
    with pytest.raises(DamagedError, match=f"host 1 of 2 at .*view-a/{FIRST} is damaged: expected {content}"):
        alone.agent.fetch("view-a", FIRST, content, target)
    assert list(target.parent.iterdir()) == []


def test_a_wrong_byte_on_the_way_is_asked_for_again(
    alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = alone.put("view-a", FIRST, b"rows")
    before, calls = client.Agent._bytes, []

    def first_wrong(self: client.Agent, *given: object) -> None:
        calls.append(given)
        if len(calls) < 3:
            raise client._OtherBytesError(Content(4, "0" * 32))
        before(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(client.Agent, "_bytes", first_wrong)
    alone.agent.fetch("view-a", FIRST, content, tmp_path / "copy.arrow")
    assert len(calls) == 3


def test_a_batch_that_is_gone(alone: Alone, tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=f"host 1 of 2 .* has no batch view-a/{FIRST}: .*is missing"):
        alone.agent.fetch("view-a", FIRST, Content(4, "0" * 32), tmp_path / "copy.arrow")


def test_a_batch_that_cannot_be_read(alone: Alone, tmp_path: Path) -> None:
    alone.path("view-a", FIRST).mkdir(parents=True)
    with pytest.raises(StorageError, match=f"{FIRST}.arrow: Is a directory"):
        alone.agent.fetch("view-a", FIRST, Content(4, "0" * 32), tmp_path / "copy.arrow")


def test_several_threads_fetch_a_batch_once(
    alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = alone.put("view-a", FIRST, LARGE)
    before, calls, go = client.Agent._fetch, [], threading.Event()

    def slowly(self: client.Agent, *given: object) -> None:
        calls.append(given)
        go.wait(10)
        before(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(client.Agent, "_fetch", slowly)
    target = tmp_path / "copy.arrow"
    threads = [
        threading.Thread(target=alone.agent.fetch, args=("view-a", FIRST, content, target)) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    threading.Timer(0.3, go.set).start()
    for thread in threads:
        thread.join(10)
    assert (len(calls), target.read_bytes()) == (1, LARGE)
    assert client._fetching == {}


def test_the_disk_of_the_one_who_fetches_is_full(alone: Alone, tmp_path: Path) -> None:
    content = alone.put("view-a", FIRST, b"rows")
    with (
        using(FailingDisk(acts={Act.WRITE}, lasting=True)),
        pytest.raises(StorageError, match="No space left"),
    ):
        alone.agent.fetch("view-a", FIRST, content, tmp_path / "copy.arrow")


@pytest.mark.parametrize(
    "path",
    [
        "/batches/..%2f..%2fsecret/x",
        "/batches/view-a/..%2f..%2fhost",
        "/batches/%2e%2e/host",
        f"/batches/.hidden/{FIRST}",
        "/batches/view-a/host",
        f"/batches/view-a/{FIRST}.arrow.7.tmp",
    ],
)
def test_no_path_leads_out(alone: Alone, path: str) -> None:
    (alone.directory / "host.arrow").write_bytes(b"secret")
    headers = {"Authorization": f"Bearer {alone.token}", **alone.membership.headers()}
    answer = httpx.get(alone.url + path, headers=headers)
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"message", "error_code", "details"}
    assert "secret" not in answer.text.replace("secret/x", "")


# -- being durable --------------------------------------------------------------------------------


def test_batches_are_made_durable_once(alone: Alone) -> None:
    batches = {"view-a": {FIRST: alone.put("view-a", FIRST, b"rows")}}
    with using(RecordingDisk()) as disk:
        alone.agent.sync(batches)
        root = alone.directory / "batches"
        assert {call.path for call in disk.calls} == {alone.path("view-a", FIRST), root / "view-a", root}
        disk.calls.clear()
        batches["view-a"][SECOND] = alone.put("view-a", SECOND, b"more")
        alone.agent.sync(batches)
        assert alone.path("view-a", FIRST) not in {call.path for call in disk.calls}
        assert alone.path("view-a", SECOND) in {call.path for call in disk.calls}


def test_a_sync_that_fails_names_the_file_and_writes_it_anew_next_time(alone: Alone) -> None:
    batches = {"view-a": {FIRST: alone.put("view-a", FIRST, b"rows")}}
    with using(FailingDisk(acts={Act.SYNC})), pytest.raises(StorageError) as raised:
        alone.agent.sync(batches)
    assert f"{alone.path('view-a', FIRST)}: No space left on device" in str(raised.value)
    assert "Traceback" not in str(raised.value)
    with using(RecordingDisk()) as disk:
        alone.agent.sync(batches)
    assert Act.RENAME in {call.act for call in disk.calls}
    assert alone.path("view-a", FIRST).read_bytes() == b"rows"


def test_what_failed_once_and_changed_is_damaged(alone: Alone) -> None:
    batches = {"view-a": {FIRST: alone.put("view-a", FIRST, b"rows")}}
    with using(FailingDisk(acts={Act.SYNC})), pytest.raises(StorageError):
        alone.agent.sync(batches)
    alone.path("view-a", FIRST).write_bytes(b"rowz")
    with pytest.raises(DamagedError, match=f"{FIRST}.arrow is damaged"):
        alone.agent.sync(batches)


def test_a_batch_that_is_not_there_cannot_be_made_durable(alone: Alone) -> None:
    with pytest.raises(StorageError, match=f"view-a/{FIRST}.arrow: No such file"):
        alone.agent.sync({"view-a": {FIRST: Content(4, "0" * 32)}})


# -- being whole ----------------------------------------------------------------------------------


def test_check_tells_all_faults(alone: Alone) -> None:
    whole = alone.put("view-a", FIRST, b"rows")
    flipped = alone.put("view-a", SECOND, b"rows")
    short = alone.put("view-b", FIRST, b"rows")
    alone.path("view-a", SECOND).write_bytes(b"rowz")
    alone.path("view-b", FIRST).write_bytes(b"row")
    batches = {"view-a": {FIRST: whole, SECOND: flipped}, "view-b": {FIRST: short, SECOND: whole}}
    shallow = alone.agent.check(batches, deep=False)
    deep = alone.agent.check(batches, deep=True)
    assert [fault.rpartition(": ")[2] for fault in shallow] == [
        "expected 4 bytes, found 3",
        f"{alone.path('view-b', SECOND)} is missing",
    ]
    assert len(deep) == 3
    assert str(alone.path("view-a", SECOND)) in deep[0]
    assert all(fault.startswith("host 1 of 2 at 127.0.0.1: ") for fault in deep)


# -- going ----------------------------------------------------------------------------------------


def test_remove(alone: Alone) -> None:
    alone.put("view-a", FIRST, b"rows")
    alone.put("view-a", SECOND, b"rows")
    alone.agent.remove([("view-a", FIRST), ("view-b", FIRST)])
    assert alone.files() == [f"view-a/{SECOND}.arrow"]


def test_discard_deletes_what_a_transaction_of_a_run_wrote(alone: Alone) -> None:
    for name in (FIRST, SECOND, OTHER_RUN, f"000000000001-{RUN}-m"):
        alone.put("view-a", name, b"rows")
    (alone.directory / "batches" / "view-a" / f"{FIRST}.arrow.77.tmp").write_bytes(b"half")
    alone.agent.discard(1, RUN)
    assert alone.files() == [f"view-a/{OTHER_RUN}.arrow", f"view-a/{SECOND}.arrow"]


@pytest.mark.parametrize(("transaction", "run"), [(-1, RUN), (1, "*"), (1, "../../x")])
def test_discard_takes_no_pattern(alone: Alone, transaction: int, run: str) -> None:
    with pytest.raises(HostError, match="no batch is of transaction"):
        alone.agent.discard(transaction, run)


def test_sweep_leaves_what_is_needed_and_what_is_not_ours(alone: Alone) -> None:
    for trace in ("view-a", "view-b"):
        for name in (FIRST, SECOND):
            alone.put(trace, name, b"rows")
    for garbage in (f"{FIRST}.arrow.77.tmp", f"{FIRST}.arrow.part", "notes.txt"):
        (alone.directory / "batches" / "view-a" / garbage).write_bytes(b"")
    alone.agent.sweep({("view-a", FIRST)})
    assert alone.files() == [f"view-a/{FIRST}.arrow", "view-a/notes.txt"]
    assert not (alone.directory / "batches" / "view-b").exists()


@pytest.mark.parametrize("name", ["../../host", "x", f"{FIRST}.arrow.1.tmp"])
def test_only_names_of_batches_are_taken(alone: Alone, name: str) -> None:
    content = Content(1, "0" * 32)
    for ask in (
        lambda: alone.agent.remove([("view-a", name)]),
        lambda: alone.agent.sweep([("view-a", name)]),
        lambda: alone.agent.sync({"view-a": {name: content}}),
        lambda: alone.agent.check({"view-a": {name: content}}, deep=False),
        lambda: alone.agent.remove([("../view-a", FIRST)]),
    ):
        with pytest.raises(HostError, match="is no name of a batch"):
            ask()


# -- the host itself ------------------------------------------------------------------------------


def test_status(alone: Alone) -> None:
    alone.put("view-a", FIRST, b"rows")
    alone.duty.worker = lambda: 77
    status = alone.agent.status()
    assert (status["batches_bytes"], status["worker_pid"], status["worker_runs"]) == (4, 77, True)
    assert status["membership"]["host"] == {"index": 1, "count": 2}


def test_a_host_that_does_not_answer_is_named(alone: Alone, tmp_path: Path) -> None:
    alone.close()
    agent = alone.client(alone.token, alone.membership)
    with pytest.raises(HostLostError, match=f"host 1 of 2 at {alone.url} .*make 1 batch durable") as raised:
        agent.sync({"view-a": {FIRST: Content(4, "0" * 32)}})
    assert raised.value.host == 1
    with pytest.raises(HostLostError, match=f"fetch the batch view-a/{FIRST}"):
        agent.fetch("view-a", FIRST, Content(4, "0" * 32), tmp_path / "copy.arrow")
    assert not (tmp_path / "copy.arrow").exists()
    agent.close()


def test_an_answer_that_does_not_come(tmp_path: Path) -> None:
    import socket

    from penstock.hosts.messages import HostIndex, Membership

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        agent = client.Agent(url, "t", Membership("p", "i", HostIndex(0, 1)), 0.3)
        with pytest.raises(HostLostError, match="no answer in time"):
            agent.status()
        agent.close()
