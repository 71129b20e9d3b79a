"""Checkpoints of several hosts in an object store: sent, fetched, dealt anew, let go of, and found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.checkpoint.check import read_manifest
from penstock.checkpoint.model import STATE_FILE, Manifest
from penstock.controller.stored import repair
from penstock.errors import DamagedError, HostLostError, PenstockError, SyncError
from penstock.failpoints import FAILPOINTS
from penstock.sync.config import SyncConfig
from penstock.sync.model import batches_of, dealt, keys_of, manifest_key
from penstock.sync.remote import remote_checkpoints, remote_manifest
from penstock.trace.files import Size
from tests.hosts.parted import Parted, disk, lose, parted
from tests.hosts.running import PATIENCE
from tests.sync.places import config_of, overwrite

POINTS = [point for point in FAILPOINTS if point.startswith("sync.")]
FETCHING = [point for point in POINTS if "fetched" in point] + ["sync.taken-over", "sync.activated"]
PUSHING = [point for point in POINTS if point not in FETCHING]


@pytest.fixture
def config(s3: str) -> SyncConfig:
    return config_of(s3, retention_min_count=2, retention_min_age=0)


@contextmanager
def primary(root: Path, config: SyncConfig, count: int = 3) -> Iterator[Parted]:
    with parted(root, count, config) as made:
        made.begin()
        yield made


def needed(made: Parted) -> set[str]:
    """What the checkpoints of the place list, and the two documents."""
    found = {"owner.json", "catalog.json"}
    for entry in remote_checkpoints(made.location):
        found |= keys_of(remote_manifest(made.location, entry)) | {manifest_key(entry.id, entry.hosts)}
    return found


# -- the catalog ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, "", "garbage"])
def test_a_catalog_that_was_lost_is_made_again_without_the_hosts(
    tmp_path: Path, config: SyncConfig, text: str | None
) -> None:
    with primary(tmp_path, config, 2) as made:
        newest = made.commit(5)
    catalog = made.shop / "catalog.json"
    catalog.unlink()
    if text is not None:
        catalog.write_text(text)
    assert newest.id in [entry.id for entry in repair(made.shop).checkpoints]
    with parted(tmp_path, 2, config) as again:
        assert again.restore().checked.entry.id == newest.id


# -- keys -----------------------------------------------------------------------------------------


def test_each_part_lies_in_a_folder_of_its_own(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config) as made:
        entry = made.commit(5, 3, 4, 5)
        made.push(entry)
        assert sorted(made.location.folders()) == ["coordinator", "host0", "host1", "host2"]
        assert set(made.location.keys("coordinator")) == {
            f"coordinator/checkpoints/{entry.id}/{name}"
            for name in ("manifest.json", "state.json", "changes-0.arrow")
        }
        for host in range(3):
            assert len(made.location.keys(f"host{host}")) == 1
        assert not any((made.shop / "batches").glob("*/*"))


def test_only_what_is_new_is_sent(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config) as made:
        made.push(made.commit(5))
        assert made.push(made.commit(6)).files == 4  # one batch, the state, a waiting change, the manifest


def test_a_batch_that_is_damaged_on_a_host_is_not_sent(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config) as made:
        entry = made.commit(4)
        path = next(disk(made.root, 1).glob("batches/*/*.arrow"))
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(DamagedError, match=r"host 1 of 3 at .* is damaged"):
            made.push(entry)
        assert made.transactions() == []


# -- fetching -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4])
def test_another_number_of_hosts_goes_on(tmp_path: Path, config: SyncConfig, count: int) -> None:
    with primary(tmp_path / "a", config) as made:
        made.push(made.commit(5, 0, 1, 2, 3, 4, 5))
        before = read_manifest(made.shop, made.store.newest)
    with parted(tmp_path / "b", count, config) as other:
        assert other.take_over() == 5
        restored = other.restore()
        manifest = restored.checked.manifest
        assert (manifest.hosts, restored.checked.saved.transaction) == (count, 5)
        for trace, batches in manifest.traces.items():
            for name, size in batches.items():
                assert count != before.hosts or size.host == before.traces[trace][name].host
                assert (disk(other.root, size.host) / "batches" / trace / f"{name}.arrow").exists()
        # It is there already; and the next one lies under the numbers that hosts have now.
        copied = other.push()
        assert (copied.files > 0) == (count == 3), "but the same numbers are sent as ever"
        assert [e.hosts for e in remote_checkpoints(other.location)] == [3]
        other.push(other.commit(6, 4, 5, 6))
        assert [(e.transaction, e.hosts) for e in remote_checkpoints(other.location)] == [(5, 3), (6, count)]
        assert set(other.location.keys("")) == needed(other)
        other.push(other.commit(7))
        assert other.transactions() == [6, 7]
        assert set(other.location.keys("")) == needed(other), "what only the old numbers had is gone"
    with parted(tmp_path / "c", 2, config) as again:
        assert again.take_over() == 7
        assert again.restore().checked.manifest.hosts == 2


def test_a_damaged_object_is_passed_over(
    tmp_path: Path, config: SyncConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with primary(tmp_path / "a", config) as made:
        made.push(made.commit(1))
        made.push(made.commit(5))
        piece = next(iter(batches_of(read_manifest(made.shop, made.store.newest), made.shop)))
        overwrite(made.location, piece.key, bytes(piece.content.bytes))
    with parted(tmp_path / "b", 3, config) as other:
        assert other.take_over() == 1
        assert piece.key in caplog.text
        assert other.restore().checked.saved.transaction == 1


# -- disks that are lost --------------------------------------------------------------------------


def test_a_host_with_a_new_disk_gets_what_it_lacks(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config, 2) as made:
        made.push(made.commit(5))
        made.store.retire(1)
    lose(tmp_path / "a", 1)
    with parted(tmp_path / "a", 2, config) as made:
        with pytest.raises(DamagedError, match=r"host 1 of 2 .* is missing"):
            made.restore()
        made.fill()
        assert made.restore().checked.saved.transaction == 5


def test_what_was_not_pushed_comes_from_the_journal(tmp_path: Path, config: SyncConfig) -> None:
    """The one that was pushed is gone on from, though newer ones were taken since."""
    with primary(tmp_path / "a", config, 2) as made:
        made.push(made.commit(2))
        made.store.pushed = made.store.newest.id
        for number in (5, 8, 11):
            made.commit(number)
            made.store.retire(2)
        assert [e.transaction for e in made.store.catalog.checkpoints] == [2, 8, 11]
        assert [e.transaction for e in made.store.kept(2)] == [11, 8, 2]
    lose(tmp_path / "a", 1)
    with parted(tmp_path / "a", 2, config) as made:
        made.fill()
        restored = made.restore()
        assert restored.checked.saved.transaction == 2
        assert all("host 1 of 2" in fault for fault in restored.passed_over)


def test_one_that_is_damaged_otherwise_is_passed_over(tmp_path: Path, config: SyncConfig) -> None:
    """What hosts lack of the one before it is fetched, too."""
    with primary(tmp_path / "a", config, 2) as made:
        made.push(made.commit(2, 0, 1))
        made.push(made.commit(5, 2, 3))
        (made.shop / "checkpoints" / made.store.newest.id / STATE_FILE).write_bytes(b"{}")
    lose(tmp_path / "a", 1)
    with parted(tmp_path / "a", 2, config) as made:
        made.fill()
        assert made.restore().checked.saved.transaction == 2


def test_what_is_being_pushed_is_gone_on_from_too(tmp_path: Path, config: SyncConfig) -> None:
    """A first push that lasts longer than checkpoints are kept."""
    with primary(tmp_path / "a", config, 2) as made:
        entry = made.commit(2)
        with made.store.in_use(entry):
            for number in (5, 8, 11):
                made.commit(number)
                made.store.retire(2)
            assert [e.transaction for e in made.store.kept(2)] == [11, 8, 2]
        assert [e.transaction for e in made.store.kept(2)] == [11, 8]


def sized(bytes_: int, host: int = 0, keys: tuple[int, int] | None = None) -> Size:
    return Size(1, bytes_, "0" * 32, host, *(keys or ()))


def test_more_hosts_have_a_share_each(tmp_path: Path) -> None:
    """By the keys of batches, or by their bytes if one machine wrote them."""
    low, high = -(1 << 63), (1 << 63) - 1
    batches = {name: sized(bytes_) for name, bytes_ in {"a": 60, "b": 50, "c": 40, "d": 10}.items()}
    assert by_host(batches, 2, before=1) == [["a", "d"], ["b", "c"]]
    placed = {"a": sized(9, 0, (low, low + 9)), "b": sized(1, 1, (0, 9)), "c": sized(5, 1, (high - 9, high))}
    assert by_host(placed, 4, before=2) == [["a"], [], ["b"], ["c"]]
    assert by_host(placed, 1, before=2) == [["a", "b", "c"]]
    assert by_host(placed, 3, before=2) == [["a"], ["b"], ["c"]]


def by_host(batches: dict[str, Size], hosts: int, before: int) -> list[list[str]]:
    """The names of batches on each host, dealt anew."""
    manifest = Manifest(
        "id", datetime.now(UTC), "p", "o", "journal", 1, 1, 1, None, "", {}, {"t": batches}, hosts=before
    )
    found = dealt(manifest, hosts).traces["t"]
    return [sorted(name for name in found if found[name].host == host) for host in range(hosts)]


def test_what_is_in_no_store_is_missed_by_name(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config, 2) as made:
        made.commit(5)
        made.store.retire(1)
    lose(tmp_path / "a", 1)
    with parted(tmp_path / "a", 2, config) as made:
        made.fill()
        with pytest.raises(DamagedError, match=r"host 1 of 2 at 127\.0\.0\.1: .* is missing"):
            made.restore()


def test_state_that_was_dealt_anew_is_found_where_it_was(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config) as made:
        made.push(made.commit(5, 0, 1, 2, 3, 4, 5))
    with parted(tmp_path / "b", 2, config) as other:
        other.take_over()
    lose(tmp_path / "b", 0)
    with parted(tmp_path / "b", 2, config) as other:
        other.fill()
        assert other.restore().checked.saved.transaction == 5


# -- retention ------------------------------------------------------------------------------------


def test_what_pushes_left_that_never_ended_is_deleted(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config) as made:
        for key in ("host7/batches/t/x.arrow", "coordinator/checkpoints/x/state.json", "checkpoints/x/y"):
            assert made.location.create(key, b"left")
        assert made.location.create("elsewhere/x", b"another's")
        for number in (1, 4, 7):
            made.push(made.commit(number))
        assert made.transactions() == [4, 7]
        assert set(made.location.keys("")) == {*needed(made), "elsewhere/x"}


# -- somebody is killed ---------------------------------------------------------------------------


def started(*arguments: object, failpoint: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.hosts.parted", *map(str, arguments)],
        env={**os.environ, "PENSTOCK_FAILPOINT": failpoint},
        stdout=subprocess.DEVNULL,
    )


def kill_coordinator(made: Parted, act: str, point: str) -> None:
    """Another incarnation of it does this, and is killed."""
    made.coordinator.close()
    config = made.config.model_copy(update={"start_from_checkpoint": "latest"})
    process = started(act, made.root, made.count, config.model_dump_json(), failpoint=point)
    assert process.wait(PATIENCE) == -signal.SIGKILL, f"{point} was never reached"


def restorable(tmp_path: Path, config: SyncConfig) -> int:
    """The transaction that machines with nothing can go on from, every byte checked."""
    fresh = tmp_path / f"fresh {len(list(tmp_path.iterdir()))}"
    with parted(fresh, 2, config) as made:
        found = made.following.fetch()
        assert found is not None
        assert made.restore().checked.saved.transaction == found.transaction
        return found.transaction


@pytest.mark.slow(minutes=2)
@pytest.mark.parametrize("point", PUSHING)
def test_the_coordinator_is_killed_while_it_pushes(
    tmp_path: Path, config: SyncConfig, point: str, hasty: None
) -> None:
    root = tmp_path / "a"
    with primary(root, config, 2) as made:
        for number in (1, 2, 5):
            made.push(made.commit(number))
        made.commit(9)
        kill_coordinator(made, "push", point)
        assert restorable(tmp_path, config) == (9 if point in ("sync.catalogued", "sync.retired") else 5)
    with parted(root, 2, config) as made:
        made.push()
        assert made.transactions() == [5, 9]
        assert set(made.location.keys("")) == needed(made)
    assert restorable(tmp_path, config) == 9


@pytest.mark.slow(minutes=2)
@pytest.mark.parametrize("point", FETCHING)
def test_the_coordinator_is_killed_while_it_fetches(
    tmp_path: Path, config: SyncConfig, point: str, hasty: None
) -> None:
    with primary(tmp_path / "a", config) as made:
        made.push(made.commit(5, 0, 1, 2, 3, 4, 5))
    with parted(tmp_path / "b", 2, config) as other:
        kill_coordinator(other, "take over", point)
    with parted(tmp_path / "b", 2, config) as other:
        assert other.take_over() == 5
        assert Counter(e.transaction for e in other.store.catalog.checkpoints) == {5: 1}
        assert other.restore().checked.saved.transaction == 5


@pytest.mark.slow(minutes=1)
@pytest.mark.parametrize("act", ["host.sent", "host.fetched"])
def test_a_host_is_killed(tmp_path: Path, config: SyncConfig, act: str) -> None:
    """A push fails, and is made again; a fetch waits for the host, and goes on."""
    root = tmp_path / "b"
    if act == "host.fetched":
        with primary(tmp_path / "a", config, 2) as made:
            made.push(made.commit(5))
    root.mkdir()
    hosts = [started("host", root, 0), started("host", root, 1, failpoint=act)]
    try:
        made = Parted(root, 2, config)
        if act == "host.sent":
            made.begin()
            made.commit(5)
        errors: list[PenstockError] = []
        working = threading.Thread(target=_try, args=(made, act, errors))
        working.start()
        assert hosts[1].wait(PATIENCE) == -signal.SIGKILL
        hosts[1] = started("host", root, 1)
        working.join(PATIENCE)
        assert not working.is_alive()
        if act == "host.sent":
            assert isinstance(errors.pop(), HostLostError)
            assert made.transactions() == []
            made.store.files.wait()
            made.push()
        assert errors == []
        assert made.restore().checked.saved.transaction == 5
        made.close()
    finally:
        for host in hosts:
            host.kill()
            host.wait()
    assert restorable(tmp_path, config) == 5


def _try(made: Parted, act: str, errors: list[PenstockError]) -> None:
    try:
        made.push() if act == "host.sent" else made.take_over()
    except PenstockError as error:
        errors.append(error)


def test_a_store_that_does_not_answer_is_named_with_the_host(tmp_path: Path, config: SyncConfig) -> None:
    with primary(tmp_path / "a", config, 2) as made:
        made.commit(5)
        elsewhere = config.model_copy(update={"bucket": "no-such-bucket"})
        made.parts._config = elsewhere
        with pytest.raises(SyncError, match=r"host \d of 2 at .*no such bucket"):
            made.push()
