"""Checkpoints on disk survive failed, torn and forgotten writes, and damage is refused by name."""

from __future__ import annotations

import errno
import json
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint.check import check, read_manifest
from penstock.checkpoint.identity import new_id
from penstock.checkpoint.model import (
    CATALOG,
    CATALOG_FILE,
    MANIFEST,
    MANIFEST_FILE,
    STATE,
    STATE_FILE,
    Catalog,
    Entry,
    Manifest,
    Saved,
    batch_path,
)
from penstock.checkpoint.repair import rebuild
from penstock.checkpoint.store import CheckpointStore
from penstock.controller.stored import go_back, program_of
from penstock.engine.fingerprints import Identity
from penstock.engine.fingerprints import Kind as RelationKind
from penstock.errors import DamagedError, StateError, StorageError
from penstock.journal.journal import Journal, first_record
from penstock.journal.record import Kind, Record
from penstock.storage.document import Document
from penstock.storage.files import content_of
from tests.disks import (
    Act,
    Call,
    FailingDisk,
    ForgetfulDisk,
    IdleDisk,
    RecordingDisk,
    files_of,
    path_of,
    using,
)
from tests.stores import all_whole, batch, begin_journal, commit, listed, made, opened, saved, transactions

WAITING_FILE = "changes-0.arrow"


@pytest.fixture(autouse=True)
def _idle() -> Iterator[None]:
    with using(IdleDisk()):
        yield


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return made(tmp_path / "storage")


# -- the order of things ------------------------------------------------------------------------


def is_durable(calls: list[Call], path: Path, root: Path) -> bool:
    """Whether these calls made the bytes of a file and its name durable, and those of its directories."""
    names = {path}  # under any of which its bytes may have been synced
    named = 0
    for place, call in enumerate(calls):
        if call.act is Act.RENAME and call.path == path and call.source is not None:
            names.add(call.source)
            named = place
    syncs = [(place, call.path) for place, call in enumerate(calls) if call.act is Act.SYNC]
    bytes_at = [place for place, synced in syncs if synced in names]
    directory_at = [place for place, synced in syncs if synced == path.parent and place >= named]
    above = [directory for directory in path.parents if directory.is_relative_to(root)][1:]
    return bool(bytes_at and directory_at) and all(any(s == d for _, s in syncs) for d in above)


def test_every_file_is_durable_before_the_manifest_and_the_manifest_before_the_catalog(
    tmp_path: Path,
) -> None:
    root = tmp_path / "storage"
    with using(RecordingDisk()) as recording:
        store = made(root)
        entries = [store.newest, *(commit(store, number) for number in (1, 2, 3))]
        store.go_back(check(root, entries[2], deep=True), "journal-2")
        entries.append(store.newest)
    calls = recording.calls
    renamed = {call.path: place for place, call in enumerate(calls) if call.act is Act.RENAME}
    catalogs = [place for place, call in enumerate(calls) if call.path == root / CATALOG_FILE]
    for number, entry in enumerate(entries):
        directory = root / "checkpoints" / entry.id
        manifest = read_manifest(root, entry)
        files = [directory / name for name in manifest.files]
        files += [batch_path(root, trace, name) for trace, name in manifest.batches]
        assert len(files) == (1 if number == 0 else 4)
        at = renamed[directory / MANIFEST_FILE]
        for path in files:
            assert is_durable(calls[:at], path, root), path
        listing = next(place for place in catalogs if place > at)
        assert is_durable(calls[:listing], directory / MANIFEST_FILE, root)
        assert is_durable(calls, root / CATALOG_FILE, root)
    assert calls[-1] == Call(Act.SYNC, root)


def test_the_test_of_the_order_notices_what_is_left_out(store: CheckpointStore) -> None:
    with using(RecordingDisk()) as recording:
        entry = commit(store, 1)
    path = store.root / "checkpoints" / entry.id / STATE_FILE
    at = next(place for place, call in enumerate(recording.calls) if call.path.name == MANIFEST_FILE)
    calls = recording.calls[:at]
    assert is_durable(calls, path, path.parent)
    for left_out in [path.parent, next(c.source for c in calls if c.path == path)]:
        fewer = [call for call in calls if call.act is not Act.SYNC or call.path != left_out]
        assert not is_durable(fewer, path, path.parent)


def test_only_new_batches_are_synced(store: CheckpointStore) -> None:
    commit(store, 1, 1, 2, 3, 4)
    with using(RecordingDisk()) as recording:
        commit(store, 2, 1, 2, 3, 4, 5)
    synced = {call.path for call in recording.calls if call.act is Act.SYNC and call.path.suffix == ".arrow"}
    trace, name, _ = batch(store.root, 5)
    assert synced == {batch_path(store.root, trace, name)}


def test_a_batch_whose_sync_failed_is_written_again(store: CheckpointStore) -> None:
    """Linux reports a failed sync once; the next one may succeed without the bytes."""
    trace, name, _ = batch(store.root, 1)
    path = batch_path(store.root, trace, name)

    class Refusing(IdleDisk):
        def sync(self, descriptor: int) -> None:
            if path_of(descriptor) == path:
                raise OSError(errno.EIO, "Input/output error")

    with using(Refusing()), pytest.raises(StorageError, match="could not be written"):
        commit(store, 1, 1)
    with using(RecordingDisk()) as recording:
        commit(store, 1, 1)
    assert any(call.act is Act.RENAME and call.path == path for call in recording.calls)
    all_whole(store.root)


# -- what fails ---------------------------------------------------------------------------------


def failure_of(step: Callable[..., object], *arguments: object) -> str | None:
    """What a step says of its failure, which has to be an error of the storage."""
    try:
        step(*arguments)
        return None
    except StorageError as error:
        return str(error)


@dataclass
class Attempt:
    """A step that is tried with the disk failing at its first call, its second, and so on."""

    root: Path
    prepare: Callable[[CheckpointStore], object]
    step: Callable[[CheckpointStore], object]

    def failures(self, **how: Any) -> Iterator[tuple[CheckpointStore, Catalog, str | None]]:
        """The store after each of them, the catalog before, and what the step said."""
        original = made(self.root / "original")
        self.prepare(original)
        for nth in count():
            root = self.root / str(nth)
            shutil.copytree(original.root, root)
            store = opened(root)
            store.restore(deep=True)
            before = store.catalog
            with using(FailingDisk(nth, **how)) as failing:
                message = failure_of(self.step, store)
            if not failing.failed:
                assert nth > 3
                assert message is None
                return
            assert message is None or "could not be written" in message
            yield store, before, message


@pytest.mark.parametrize(
    "how",
    [
        {"code": errno.ENOSPC},
        {"code": errno.EIO},
        {"code": errno.ENOSPC, "torn": True},
        {"code": errno.EROFS, "lasting": True},
    ],
    ids=["full", "broken", "torn", "from then on"],
)
def test_a_commit_may_fail_at_any_call(tmp_path: Path, how: dict[str, Any]) -> None:
    def prepare(store: CheckpointStore) -> None:
        commit(store, 1)
        commit(store, 2)

    attempt = Attempt(tmp_path, prepare, lambda store: commit(store, 3))
    for store, before, message in attempt.failures(**how):
        assert message is not None
        assert store.catalog == before
        assert transactions(all_whole(store.root)) in ([0, 1, 2], [0, 1, 2, 3])
        commit(store, 3)
        commit(store, 4)
        assert transactions(all_whole(store.root)) == [0, 1, 2, 3, 4]
        store.retire(2)
        store.sweep()
        assert transactions(all_whole(store.root)) == [3, 4]
        assert set(files_of(store.root)) == listed(store.root)


def test_a_commit_that_failed_with_the_process_gone_leaves_only_garbage(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, lambda store: commit(store, 1), lambda store: commit(store, 2))
    for store, _, message in attempt.failures():
        assert message is not None
        after = opened(store.root)
        after.restore(deep=True)
        after.sweep()
        assert set(files_of(store.root)) == listed(store.root)
        assert transactions(all_whole(store.root)) in ([0, 1], [0, 1, 2])


def test_clean_up_may_fail_at_any_call(tmp_path: Path) -> None:
    def prepare(store: CheckpointStore) -> None:
        for number in (1, 2, 3):
            commit(store, number)

    attempt = Attempt(tmp_path, prepare, lambda store: store.retire(2))
    for store, before, message in attempt.failures():
        assert (store.catalog == before) == (message is not None), "garbage that stays is no error"
        assert transactions(all_whole(store.root)) in ([0, 1, 2, 3], [2, 3])
        commit(store, 4)
        store.retire(2)
        store.sweep()
        assert transactions(all_whole(store.root)) == [3, 4]
        assert set(files_of(store.root)) == listed(store.root)


def test_what_is_remembered_of_a_checkpoint_may_fail_to_be_written(store: CheckpointStore) -> None:
    entry = commit(store, 1)
    before = store.catalog
    with using(FailingDisk(lasting=True)), pytest.raises(StorageError, match="No space left"):
        store.verify(entry)
    assert store.catalog == before
    assert store.verify(entry).entry.id == entry.id


def test_a_first_checkpoint_may_fail_at_any_call(tmp_path: Path) -> None:
    for nth in count():
        root = tmp_path / str(nth)
        (root / "batches").mkdir(parents=True)
        store = CheckpointStore(root)
        with using(FailingDisk(nth)) as failing:
            message = failure_of(store.begin, "p", "owner", saved(0))
        if not failing.failed:
            return
        assert message is not None
        assert "No space left" in message
        store = CheckpointStore(root)
        if store.read() is None:
            store.begin("p", "owner", saved(0))
        assert transactions(all_whole(root)) == [0]


def test_files_that_cannot_be_removed_at_a_start_are_left(store: CheckpointStore) -> None:
    entry = commit(store, 1)
    trace, name, _ = batch(store.root, 7)
    with using(FailingDisk(acts={Act.REMOVE}, code=errno.EACCES, lasting=True)) as failing:
        store.sweep()
    assert failing.failed
    assert batch_path(store.root, trace, name).exists()
    assert check(store.root, entry, deep=True).saved.transaction == 1


# -- power cuts ---------------------------------------------------------------------------------


def power_cuts(
    root: Path, step: Callable[[], object], copies: Path, seeds: int = 3
) -> Iterator[tuple[str, Path]]:
    """What the power leaves of a directory if it is cut after each call of a step."""
    found: list[tuple[str, Path]] = []

    def after() -> None:
        for seed in (None, *range(seeds)):
            called = f"call {len(found) // (seeds + 1)}, seed {seed}"
            copy = copies / str(len(found))
            forgetful.cut(copy, seed=None if seed is None else seed + len(found))
            found.append((called, copy))

    with using(ForgetfulDisk(root, after=after)) as forgetful:
        step()
        after()
    yield from found


def test_the_power_may_go_at_any_call_of_a_commit(store: CheckpointStore, tmp_path: Path) -> None:
    commit(store, 1)
    commit(store, 2)
    begin_journal(store.root, 20)
    cuts = list(power_cuts(store.root, lambda: commit(store, 3), tmp_path / "cuts"))
    assert len(cuts) > 40
    seen = set()
    for when, root in cuts:
        after = opened(root)
        restored = after.restore(deep=True)
        assert not restored.passed_over, when
        seen.add(restored.checked.saved.transaction)
        after.sweep()
        all_whole(root)
        commit(after, 4)
        after.retire(1)
        after.sweep()
        assert transactions(all_whole(root)) == [4]
        assert set(files_of(root)) == listed(root), when
    assert seen == {2, 3}
    assert restored.checked.saved.transaction == 3  # once it was taken it stays


def test_the_power_may_go_at_any_call_of_a_clean_up(store: CheckpointStore, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        commit(store, number)

    def clean_up() -> None:
        _, gone = store.retire(2)
        assert len(gone) == 1
        store.sweep()

    for when, root in power_cuts(store.root, clean_up, tmp_path / "cuts", seeds=6):
        assert transactions(all_whole(root)) in ([0, 1, 2, 3], [2, 3]), when
        after = opened(root)
        after.sweep()
        assert set(files_of(root)) == listed(root), when


@pytest.mark.parametrize("lost", [False, True], ids=["", "and the catalog is lost"])
def test_the_power_may_go_at_any_call_of_going_back(
    store: CheckpointStore, tmp_path: Path, lost: bool
) -> None:
    """The pipeline has gone back, or has not: never the one state with the journal of the other."""
    first = commit(store, 1)
    commit(store, 2)
    record_in(store.root / "journal")
    before = files_of(store.root / "journal")
    seen = []
    for when, root in power_cuts(store.root, lambda: go_back(store.root, first.id), tmp_path / "cuts"):
        if lost:
            (root / CATALOG_FILE).unlink()
            rebuild(root, without_damaged=False)
        catalog = all_whole(root)
        gone_back = catalog.journal != "journal"
        seen.append(gone_back)
        assert transactions(catalog) == ([0, 1, 2, 1] if gone_back else [0, 1, 2]), when
        assert [e.aside for e in catalog.checkpoints] == [gone_back] * 3 + [False] * gone_back, when
        assert opened(root).sweep()
        assert {path.name for path in root.glob("journal*")} == {"journal", catalog.journal}, when
        assert files_of(root / "journal") == before, when
        if gone_back:
            with closing(Journal(root / catalog.journal, durable=True)) as journal:
                assert journal.open(catalog.line[-1].record) == [], when
    assert not seen[0]
    assert seen[-1]


def test_the_power_may_go_at_any_call_of_a_first_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    (root / "batches").mkdir(parents=True)
    begin_journal(root, 0)
    new = CheckpointStore(root)
    for when, left in power_cuts(root, lambda: new.begin("p", "o", saved(0)), tmp_path / "cuts", seeds=6):
        store = CheckpointStore(left)
        (left / "batches").mkdir(exist_ok=True)
        if store.read() is None:
            store.begin("p", "owner", saved(0))
        store.sweep()
        assert transactions(all_whole(left)) == [0], when
        assert set(files_of(left)) == listed(left), when


# -- clean-up -----------------------------------------------------------------------------------


def test_a_damaged_manifest_of_a_kept_checkpoint_stops_clean_up_before_its_first_deletion(
    store: CheckpointStore,
) -> None:
    commit(store, 1, 0, 1)  # A
    commit(store, 2, 2, 3)  # B: all of its batches are shared with C
    third = commit(store, 3, 2, 3, 4)  # C
    path = store.root / "checkpoints" / third.id / MANIFEST_FILE
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    commit(store, 4, 4, 5)  # D
    before = files_of(store.root)
    for _ in range(2):
        with pytest.raises(DamagedError) as raised:
            store.retire(2)
        assert str(path) in str(raised.value)
        assert "no checkpoint was deleted" in str(raised.value)
        assert files_of(store.root) == before
        assert transactions(store.catalog) == [0, 1, 2, 3, 4]
    assert opened(store.root).sweep() is False
    assert files_of(store.root) == before
    commit(store, 5, 5, 6)  # E: nobody needs C any more
    _, gone = store.retire(2)
    assert gone == {batch(store.root, number)[:2] for number in (0, 1, 2, 3)}
    assert transactions(all_whole(store.root)) == [4, 5]
    assert {path.name for path in (store.root / "checkpoints").iterdir()} == {
        entry.id for entry in store.catalog.checkpoints
    }
    assert opened(store.root).sweep()
    assert set(files_of(store.root)) == listed(store.root)
    assert transactions(all_whole(store.root)) == [4, 5]


def test_batches_stay_as_long_as_a_manifest_that_lists_them(store: CheckpointStore) -> None:
    for number in (1, 2, 3):
        commit(store, number)

    class Refusing(IdleDisk):
        def sync(self, descriptor: int) -> None:
            if path_of(descriptor).parent.name == "checkpoints":
                raise OSError(errno.EIO, "Input/output error")

    path = batch_path(store.root, *batch(store.root, 0)[:2])
    with using(Refusing()):
        needed, gone = store.retire(2)
        assert batch(store.root, 0)[:2] in needed
        assert gone == set()
        assert not store.sweep()
    assert path.exists()
    assert store.sweep()
    assert not path.exists()
    assert set(files_of(store.root)) == listed(store.root)


def test_clean_up_says_which_batches_are_needed_and_which_are_not(store: CheckpointStore) -> None:
    for number in (1, 2, 3):
        commit(store, number)
    needed, gone = store.retire(2)
    assert needed == {batch(store.root, number)[:2] for number in (1, 2, 3)}
    assert gone == {batch(store.root, 0)[:2]}


def test_a_named_checkpoint_is_kept_until_it_is_deleted(store: CheckpointStore) -> None:
    commit(store, 1, name="before-migration")
    for number in (2, 3, 4):
        commit(store, number)
        store.retire(1)
    assert transactions(all_whole(store.root)) == [1, 4]
    opened(store.root).sweep()
    assert transactions(all_whole(store.root)) == [1, 4]
    assert store.find("before-migration").transaction == 1
    with pytest.raises(StateError, match="there is a checkpoint before-migration already"):
        commit(store, 5, name="before-migration")
    for wrong in ("", "a b", "../up", ".hidden", new_id()):
        with pytest.raises(StateError, match="cannot be the name"):
            commit(store, 5, name=wrong)
    with pytest.raises(StateError, match="goes on from"):
        store.delete(store.newest)
    store.delete(store.find("before-migration"))
    store.sweep()
    assert transactions(all_whole(store.root)) == [4]
    assert set(files_of(store.root)) == listed(store.root)


def test_the_checkpoint_that_a_start_would_use_is_not_deleted(store: CheckpointStore) -> None:
    whole = commit(store, 1)
    newest = commit(store, 2)
    (store.root / "checkpoints" / newest.id / STATE_FILE).unlink()
    assert store.restore(deep=False).checked.entry == whole
    with pytest.raises(StateError, match="goes on from"):
        store.delete(whole)
    assert opened(store.root).restore(deep=True).checked.entry == whole


def changed(number: int) -> Saved:
    """A state of another program."""
    relation = Identity("v", RelationKind.VIEW, f"fingerprint {number}")
    return replace(saved(number), relations={"v": relation})


def test_one_that_no_start_would_use_may_be_deleted_and_the_one_that_waits_for_repair_not(
    store: CheckpointStore,
) -> None:
    """The journal does not reach back to the one that is whole."""
    unreached = commit(store, 1)
    damaged = [commit(store, 2), commit(store, 3)]
    begin_journal(store.root, 20)
    for entry in damaged:
        (store.root / "checkpoints" / entry.id / STATE_FILE).unlink()
    with pytest.raises(StateError, match="goes on from"):
        store.delete(damaged[1])
    store.delete(unreached)
    assert transactions(store.catalog) == [0, 2, 3]


def test_the_newest_is_not_deleted_for_one_of_another_program(store: CheckpointStore) -> None:
    older = commit(store, 1)
    newest = store.commit(changed(2), {})
    (store.root / "checkpoints" / newest.id / STATE_FILE).unlink()
    with pytest.raises(StateError, match="goes on from"):
        store.delete(newest)
    store.delete(older)
    assert transactions(store.catalog) == [0, 2]


def test_no_start_goes_back_over_a_change_of_program_and_its_undoing(store: CheckpointStore) -> None:
    commit(store, 1)
    store.commit(changed(2), {})
    newest = commit(store, 3)
    assert list(store.candidates) == [newest]
    (store.root / "checkpoints" / newest.id / STATE_FILE).unlink()
    with pytest.raises(DamagedError, match="no checkpoint"):
        opened(store.root).restore(deep=False)


def test_a_change_of_program_is_remembered_when_its_checkpoint_is_gone(store: CheckpointStore) -> None:
    commit(store, 1)
    between = store.commit(changed(2), {})
    commit(store, 3)
    newest = commit(store, 4)
    store.delete(between)
    assert [entry.transaction for entry in store.candidates] == [4, 3]
    (store.root / CATALOG_FILE).unlink()
    rebuild(store.root, without_damaged=False)
    again = opened(store.root)
    assert [entry.transaction for entry in again.candidates] == [4, 3]
    assert again.newest.since == newest.since


def test_no_start_goes_back_over_a_change_in_a_catalog_that_does_not_tell_since_when(
    store: CheckpointStore,
) -> None:
    for entry in (commit(store, 1), store.commit(changed(2), {})):
        store.change(entry, since="")
    assert [entry.transaction for entry in store.candidates] == [2]


def test_the_only_one_to_fall_back_on_is_retained_before_newer_ones_that_are_damaged(
    store: CheckpointStore,
) -> None:
    commit(store, 1)
    for number in (2, 3):
        store.change(commit(store, number), suspect=True)
    commit(store, 4)
    begin_journal(store.root, 10)
    store.retire(3)
    assert transactions(store.catalog) == [1, 3, 4]
    store.retire(2)
    assert transactions(store.catalog) == [1, 4]


def test_a_start_removes_what_nothing_lists_and_leaves_unknown_files_alone(store: CheckpointStore) -> None:
    root = store.root
    commit(store, 1)
    whole = set(files_of(root))
    foreign = [
        "notes.txt",
        "mine.json",
        "mine.json.7.tmp",
        "catalog.json.bak",
        "batches/readme",
        "batches/trace-0/readme.arrow",
        "batches/trace-0/1.arrow",
        "batches/trace-0/000000000009-00000000-0000.arrow.bak",
        "batches/elsewhere/data.parquet",
        "checkpoints/notes.txt",
        "checkpoints/old/manifest.json",
        f"checkpoints/{new_id()}.damaged/manifest.json",
        f"checkpoints/{store.newest.id}/notes.txt",
        "journal-mine/000000000000.log",
        f"journal-{new_id()}.bak/000000000000.log",
        f"journal-{new_id()}/notes.txt",
        f"journals-{new_id()}",
    ]
    garbage = [
        "catalog.json.123.tmp",
        "batches/trace-0/000000000009-0a1b2c3d-0000.arrow",
        "batches/trace-0/000000000009-0a1b2c3d-12345.arrow",
        "batches/trace-1/000000000009-0a1b2c3d-m.arrow",
        "batches/trace-1/m0123456789abcdef.arrow",
        "batches/trace-1/m0123456789abcdef.arrow.17.tmp",
        "batches/gone/000000000009-0a1b2c3d-0000.arrow.17.tmp",
        f"checkpoints/{new_id()}/state.json",
        f"checkpoints/{new_id()}/manifest.json",
        f"checkpoints/{new_id()}/changes-0.arrow.17.tmp",
        f"checkpoints/{store.newest.id}/state.json.17.tmp",
        f"journal-{new_id()}/000000000000.log",
        f"journal-{new_id()}/000000000000.log.17.tmp",
        f"journal-{new_id()}/000000000007-0.arrow",
    ]
    for name in [*foreign, *garbage]:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"x")
    (root / "batches" / "empty").mkdir()
    (root / f"journal-{new_id()}").mkdir()
    assert store.sweep()
    assert set(files_of(root)) == {*whole, *foreign}
    assert not [path for path in root.rglob("*") if path.is_dir() and not any(path.iterdir())]
    all_whole(root)


def test_a_journal_set_aside_stays_as_long_as_one_of_its_checkpoints(store: CheckpointStore) -> None:
    for number in (1, 2):
        commit(store, number)
    record_in(store.root / "journal")
    begin_journal(store.root, 10, after := f"journal-{new_id()}")
    store.go_back(check(store.root, store.catalog.checkpoints[1], deep=True), after)
    for entry in [entry for entry in store.catalog.checkpoints if entry.aside]:
        assert store.sweep()
        assert (store.root / "journal" / "000000000000.log").exists()
        store.delete(entry)
    assert store.sweep()
    assert not (store.root / "journal").exists()
    assert (store.root / after).exists()
    assert set(files_of(store.root)) == listed(store.root)


def test_a_journal_with_records_stays_beside_a_checkpoint_that_a_repair_did_without(
    store: CheckpointStore,
) -> None:
    """Nobody can tell any more which journal that one belongs to."""
    first = commit(store, 1)
    begin_journal(store.root, 10, after := f"journal-{new_id()}")
    copy = store.go_back(check(store.root, first, deep=True), after)
    record_in(store.root / after)
    begin_journal(store.root, 10, empty := f"journal-{new_id()}")
    manifest_of(store.root, copy).write_bytes(b"")
    (store.root / CATALOG_FILE).unlink()
    assert rebuild(store.root, without_damaged=True).journal == "journal"
    assert opened(store.root).sweep()
    assert (store.root / after / "000000000010.log").exists()
    assert not (store.root / empty).exists()


def record_in(directory: Path) -> None:
    """Give a journal a record."""
    journal = Journal(directory, durable=True)
    begins = first_record(directory)
    assert begins is not None
    journal.open(begins)
    journal.append(Record(Kind.BEGIN, 1, datetime.now(UTC)))
    journal.close()


def test_a_thousand_checkpoints_leave_the_files_of_the_last_two(store: CheckpointStore) -> None:
    for number in range(1, 1001):
        commit(store, number)
        _, gone = store.retire(2)
        for trace, name in gone:
            batch_path(store.root, trace, name).unlink()
    assert transactions(all_whole(store.root)) == [999, 1000]
    assert set(files_of(store.root)) == listed(store.root)
    assert len(list((store.root / "checkpoints").iterdir())) == 2


# -- damage -------------------------------------------------------------------------------------


def manifest_of(root: Path, entry: Entry) -> Path:
    return root / "checkpoints" / entry.id / MANIFEST_FILE


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut short": lambda content: content[:-1],
    "cut in half": lambda content: content[: len(content) // 2],
    "too long": lambda content: content + b"\n",
    "zeros": lambda content: bytes(len(content)),
    "random bytes": lambda content: random.Random(4).randbytes(len(content)),
    "another document": lambda content: b'{"format": "other", "version": 1, "content": {}}',
    "another kind of JSON": lambda content: b"[1, 2]",
    "very deep JSON": lambda content: b"[" * 100_000,
    "deep content": lambda content: (
        content.replace(b'"content": {', b'"content": ' + b'{"a":' * 500 + b"{") + b"}" * 500
    ),
}
FILES: dict[str, Callable[[Path, Entry], Path]] = {
    "catalog": lambda root, entry: root / CATALOG_FILE,
    "manifest": manifest_of,
    "state": lambda root, entry: manifest_of(root, entry).with_name(STATE_FILE),
    "waiting rows": lambda root, entry: manifest_of(root, entry).with_name(WAITING_FILE),
    "batch": lambda root, entry: batch_path(root, *batch(root, 1)[:2]),
}


@pytest.fixture
def only_one(store: CheckpointStore) -> Entry:
    """A checkpoint that is the only one that the journal reaches back to."""
    begin_journal(store.root, 10)
    return commit(store, 1)


def refused(root: Path, path: Path) -> None:
    """Opening the store is refused, the error names the file, and nothing is changed."""
    before = files_of(root)
    with pytest.raises(StorageError) as raised:
        opened(root).restore(deep=True)
    assert str(path) in str(raised.value)
    assert files_of(root) == before


def put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_refused_by_name(
    store: CheckpointStore, only_one: Entry, file: str, damage: str
) -> None:
    path = FILES[file](store.root, only_one)
    put(path, DAMAGES[damage](path.read_bytes()))
    refused(store.root, path)


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_of_any_file_is_refused(store: CheckpointStore, only_one: Entry, file: str) -> None:
    path = FILES[file](store.root, only_one)
    content = path.read_bytes()
    bits = range(len(content) * 8)
    for bit in bits if len(bits) <= 1000 else random.Random(4).sample(bits, 200):
        path.write_bytes(flipped(content, bit))
        refused(store.root, path)
    path.write_bytes(content)
    all_whole(store.root)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize(
    ("file", "document"), [("catalog", CATALOG), ("manifest", MANIFEST), ("state", STATE)]
)
def test_every_flipped_bit_of_a_document_is_noticed(
    store: CheckpointStore, file: str, document: Document[Any]
) -> None:
    path = FILES[file](store.root, commit(store, 1))
    content = path.read_bytes()
    document.parse(content, path)
    for bit in range(len(content) * 8):
        with pytest.raises(StorageError) as raised:
            document.parse(flipped(content, bit), path)
        assert str(path) in str(raised.value)


@pytest.mark.parametrize("file", ["catalog", "manifest", "state"])
def test_a_directory_in_place_of_a_file_is_refused(
    store: CheckpointStore, only_one: Entry, file: str
) -> None:
    path = FILES[file](store.root, only_one)
    path.unlink()
    path.mkdir()
    refused(store.root, path)


def rewritten(
    store: CheckpointStore,
    entry: Entry,
    state: Callable[[Path], object] | None = None,
    manifest: Callable[[Path, Manifest], object] = MANIFEST.write,
) -> None:
    """Write the state file or the manifest of a checkpoint again; what lists them fits."""
    path = manifest_of(store.root, entry)
    listing = MANIFEST.read(path)
    if state is not None:
        state(path.with_name(STATE_FILE))
        files = {**listing.files, STATE_FILE: content_of(path.with_name(STATE_FILE))}
        listing = replace(listing, files=files)
    manifest(path, listing)
    entries = [
        replace(e, manifest=content_of(path)) if e.id == entry.id else e for e in store.catalog.checkpoints
    ]
    CATALOG.write(store.root / CATALOG_FILE, replace(store.catalog, checkpoints=tuple(entries)))


def test_a_format_version_from_the_future_is_refused_by_name(store: CheckpointStore) -> None:
    entry = commit(store, 1)
    path = manifest_of(store.root, entry)
    original = path.read_bytes(), path.with_name(STATE_FILE).read_bytes()
    future_state, future_manifest = Document("state", 2, Saved), Document("manifest", 2, Manifest)
    for file, rewrite in {
        STATE_FILE: lambda: rewritten(store, entry, lambda path: future_state.write(path, saved(1))),
        MANIFEST_FILE: lambda: rewritten(store, entry, manifest=future_manifest.write),
        CATALOG_FILE: lambda: Document("catalog", 2, Catalog).write(store.root / CATALOG_FILE, store.catalog),
    }.items():
        rewrite()
        before = files_of(store.root)
        found = path.with_name(file) if file != CATALOG_FILE else store.root / file
        with pytest.raises(
            StorageError, match="has format version 2; this Penstock reads version 1"
        ) as raised:
            opened(store.root).restore(deep=True)
        assert str(found) in str(raised.value)
        assert not isinstance(raised.value, DamagedError)
        assert files_of(store.root) == before
        path.write_bytes(original[0])
        path.with_name(STATE_FILE).write_bytes(original[1])


@pytest.mark.parametrize("found", [b"changes/2", b"rows/1", b"\xff"])
def test_waiting_rows_of_another_format_are_refused_by_name(
    store: CheckpointStore, only_one: Entry, found: bytes
) -> None:
    path = manifest_of(store.root, only_one).with_name(WAITING_FILE)
    written_as(store, only_one, {b"penstock.format": found})
    text = re.escape(f"{path} has format version {found.decode(errors='replace')}; this Penstock reads")
    with pytest.raises(StorageError, match=f"{text} version changes/1") as raised:
        opened(store.root).restore(deep=True)
    assert not isinstance(raised.value, DamagedError)


def test_waiting_rows_have_a_format_and_those_without_one_are_of_the_first(
    store: CheckpointStore, only_one: Entry
) -> None:
    path = manifest_of(store.root, only_one).with_name(WAITING_FILE)
    with pa.ipc.open_file(path) as file:
        assert file.schema.metadata == {b"penstock.format": b"changes/1"}
    for _ in range(2):
        (waiting,) = opened(store.root).restore(deep=True).checked.pending
        assert waiting.changes.equals(pa.table({"n": [1]}), check_metadata=True)
        written_as(store, only_one, None)


def written_as(store: CheckpointStore, entry: Entry, metadata: dict[bytes, bytes] | None) -> None:
    """Write the waiting rows of a checkpoint again, with this metadata; what lists them fits."""
    path = manifest_of(store.root, entry).with_name(WAITING_FILE)
    with pa.ipc.open_file(path) as file:
        table = file.read_all().replace_schema_metadata(metadata)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    listing = MANIFEST.read(manifest_of(store.root, entry))
    files = {**listing.files, WAITING_FILE: content_of(path)}
    rewritten(store, entry, manifest=lambda path, _: MANIFEST.write(path, replace(listing, files=files)))


@pytest.mark.parametrize(
    ("field", "value"),
    [("transaction", "many"), ("rows", 7), ("rows", {"t": None}), ("positions", []), ("program", None)],
)
def test_a_field_of_a_wrong_type_is_named(
    store: CheckpointStore, only_one: Entry, field: str, value: object
) -> None:
    entry = only_one
    path = manifest_of(store.root, entry).with_name(STATE_FILE)
    content = json.loads(path.read_bytes())["content"]
    rewritten(
        store, entry, lambda path: Document("state", 1, dict[str, Any]).write(path, {**content, field: value})
    )
    with pytest.raises(DamagedError, match=field) as raised:
        opened(store.root).restore(deep=False)
    assert str(path) in str(raised.value)


def test_all_damaged_files_are_listed(store: CheckpointStore) -> None:
    entry = commit(store, 1, 1, 2, 3)
    paths = [manifest_of(store.root, entry).with_name(name) for name in (STATE_FILE, WAITING_FILE)]
    paths += [batch_path(store.root, *batch(store.root, number)[:2]) for number in (1, 2)]
    for number, path in enumerate(paths):
        put(path, None if number % 2 else flipped(path.read_bytes(), 100))
    begin_journal(store.root, 10)
    before = files_of(store.root)
    with pytest.raises(DamagedError) as raised:
        opened(store.root).restore(deep=True)
    assert len(raised.value.faults) == len(paths)
    for path in paths:
        assert sum(str(path) in fault for fault in raised.value.faults) == 1
        assert str(path) in str(raised.value)
    assert files_of(store.root) == before


def test_without_deep_checks_a_batch_must_only_have_its_size(store: CheckpointStore) -> None:
    commit(store, 1)
    path = batch_path(store.root, *batch(store.root, 1)[:2])
    content = path.read_bytes()
    path.write_bytes(flipped(content, 5))
    begin_journal(store.root, 10)
    assert not opened(store.root).restore(deep=False).deep
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedError, match=f"expected {len(content)} bytes, found {len(content) - 1}"):
        opened(store.root).restore(deep=False)


def test_a_checkpoint_that_was_found_damaged_is_looked_at_whole_from_then_on(store: CheckpointStore) -> None:
    commit(store, 1)
    commit(store, 2)
    path = batch_path(store.root, *batch(store.root, 2)[:2])
    content = path.read_bytes()
    assert store.suspect() == []
    path.write_bytes(flipped(content, 5))
    assert [str(path) in fault for fault in store.suspect()] == [True]
    again = opened(store.root)
    assert again.newest.suspect
    restored = again.restore(deep=False)
    assert restored.checked.saved.transaction == 1
    path.write_bytes(content)
    restored = again.restore(deep=False)
    assert (restored.checked.saved.transaction, restored.deep) == (2, True)
    assert not opened(store.root).newest.suspect


def test_damage_may_be_found_while_checkpoints_are_taken_and_let_go(store: CheckpointStore) -> None:
    commit(store, 1, name="kept")
    path = batch_path(store.root, *batch(store.root, 1)[:2])
    path.write_bytes(flipped(path.read_bytes(), 5))
    ended = threading.Event()
    found: list[list[str]] = []

    def suspect() -> None:
        while not ended.is_set():
            found.append(store.suspect())

    reader = threading.Thread(target=suspect)
    reader.start()
    try:
        for number in range(3, 60):
            commit(store, number)
            store.retire(2)
            kept = transactions(store.catalog)
            if number == 3:  # the first one stands in for the damaged one, if that was found by now
                assert kept in ([1, 3], [0, 1, 3])
            else:
                assert kept == [1, number - 1, number]
    finally:
        ended.set()
        reader.join()
    assert found
    assert all(str(path) in fault for faults in found for fault in faults)
    assert opened(store.root).catalog == store.catalog
    assert store.find("kept").suspect


# -- restore ------------------------------------------------------------------------------------


def test_an_older_checkpoint_is_used_if_the_journal_reaches_back_to_it(store: CheckpointStore) -> None:
    older = commit(store, 1)
    path = manifest_of(store.root, commit(store, 2)).with_name(STATE_FILE)
    content = path.read_bytes()
    path.write_bytes(flipped(content, 9))
    for begins in (0, 9, 10):
        begin_journal(store.root, begins)
        restored = opened(store.root).restore(deep=False)
        assert restored.checked.entry == older
        assert [str(path) in fault for fault in restored.passed_over] == [True]
    begin_journal(store.root, 11)
    before = files_of(store.root)
    with pytest.raises(DamagedError, match="Nothing was changed or deleted") as raised:
        opened(store.root).restore(deep=False)
    assert str(path) in str(raised.value)
    assert files_of(store.root) == before
    path.write_bytes(content)
    assert opened(store.root).restore(deep=True).checked.saved.transaction == 2


def test_a_manifest_is_missing_while_all_others_are_fine(store: CheckpointStore) -> None:
    commit(store, 1)
    manifest_of(store.root, commit(store, 2)).unlink()
    again = opened(store.root)
    before = files_of(store.root)
    restored = again.restore(deep=True)
    assert restored.checked.saved.transaction == 1
    assert not again.sweep()
    after = files_of(store.root)
    assert after.pop(CATALOG_FILE) != before.pop(CATALOG_FILE), "which one is damaged is remembered"
    assert after == before


# -- a directory that a running pipeline uses -----------------------------------------------------


@pytest.mark.parametrize("changes", [1, 4])
def test_the_program_is_read_again_when_its_checkpoint_went_away(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    numbers = count(1)
    read_catalog = CheckpointStore.read

    def read(reader: CheckpointStore) -> Catalog | None:
        """The pipeline takes a checkpoint, and lets go of the one before, as soon as the catalog was read."""
        catalog = read_catalog(reader)
        if (number := next(numbers)) < 2 * changes:
            commit(store, number)
            store.retire(1)
        return catalog

    monkeypatch.setattr(CheckpointStore, "read", read)
    assert program_of(store.root) == "the program"


def test_the_program_of_checkpoints_that_never_stay_is_not_read_forever(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count(1)
    read_catalog = CheckpointStore.read

    def read(reader: CheckpointStore) -> Catalog | None:
        catalog = read_catalog(reader)
        commit(store, next(numbers))
        store.retire(1)
        return catalog

    monkeypatch.setattr(CheckpointStore, "read", read)
    with pytest.raises(StateError, match=f"{store.root} is in use"):
        program_of(store.root)


def test_the_program_of_a_checkpoint_that_is_damaged_is_not_waited_for(store: CheckpointStore) -> None:
    path = manifest_of(store.root, commit(store, 1))
    path.unlink()
    with pytest.raises(DamagedError, match=f"{path} is missing"):
        program_of(store.root)


# -- the catalog --------------------------------------------------------------------------------


def test_a_missing_catalog_is_refused_and_made_again(store: CheckpointStore) -> None:
    commit(store, 1)
    store.verify(commit(store, 2, name="named"))
    commit(store, 3)
    path = store.root / CATALOG_FILE
    path.unlink()
    before = files_of(store.root)
    with pytest.raises(DamagedError, match="penstock checkpoint repair") as raised:
        CheckpointStore(store.root).read()
    assert f"{path} is missing" in str(raised.value)
    assert files_of(store.root) == before
    rebuild(store.root, without_damaged=False)
    entries = tuple(replace(entry, verified=None) for entry in store.catalog.checkpoints)
    assert all_whole(store.root) == replace(store.catalog, checkpoints=entries)
    assert {**before, CATALOG_FILE: path.read_bytes()} == files_of(store.root)


def test_batches_without_a_catalog_are_not_taken_for_a_new_directory(tmp_path: Path) -> None:
    (tmp_path / "batches").mkdir()
    batch(tmp_path, 1)
    with pytest.raises(DamagedError, match="missing"):
        CheckpointStore(tmp_path).read()


def test_a_catalog_is_not_made_of_damaged_manifests_unless_asked_for(store: CheckpointStore) -> None:
    commit(store, 1)
    entry = commit(store, 2)
    path = manifest_of(store.root, entry)
    path.write_bytes(flipped(path.read_bytes(), 99))
    (store.root / CATALOG_FILE).unlink()
    before = files_of(store.root)
    with pytest.raises(DamagedError, match="--without-damaged") as raised:
        rebuild(store.root, without_damaged=False)
    assert str(path) in str(raised.value)
    assert files_of(store.root) == before
    rebuild(store.root, without_damaged=True)
    assert transactions(all_whole(store.root)) == [0, 1]
    opened(store.root).sweep()
    assert (store.root / "checkpoints" / f"{entry.id}.damaged" / STATE_FILE).exists()


def test_a_checkpoint_that_was_being_deleted_does_not_come_back_in_part(
    store: CheckpointStore, tmp_path: Path
) -> None:
    """The power goes while old ones are deleted, and then the catalog is lost."""
    for number in (1, 2, 3):
        commit(store, number)

    def clean_up() -> None:
        store.retire(1)
        store.sweep()

    for when, root in power_cuts(store.root, clean_up, tmp_path / "cuts", seeds=12):
        (root / CATALOG_FILE).unlink()
        rebuild(root, without_damaged=False)
        found = transactions(all_whole(root))
        assert found[-1] == 3, when


def test_what_a_crash_leaves_of_a_deleted_checkpoint_is_none(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        commit(store, number)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    store.retire(1)
    monkeypatch.undo()
    assert len(list((store.root / "checkpoints").iterdir())) == 4
    (store.root / CATALOG_FILE).unlink()
    assert transactions(rebuild(store.root, without_damaged=False)) == [3]


@pytest.mark.parametrize("file", ["state", "waiting rows", "batch"])
def test_a_repair_lists_only_checkpoints_that_are_whole(store: CheckpointStore, file: str) -> None:
    commit(store, 1, 0)
    entry = commit(store, 2, 1)
    path = FILES[file](store.root, entry)
    path.unlink()
    (store.root / CATALOG_FILE).unlink()
    before = files_of(store.root)
    with pytest.raises(DamagedError, match="--without-damaged") as raised:
        rebuild(store.root, without_damaged=False)
    assert [str(path) in fault for fault in raised.value.faults] == [True]
    assert files_of(store.root) == before
    rebuild(store.root, without_damaged=True)
    assert transactions(all_whole(store.root)) == [0, 1]
    assert (store.root / "checkpoints" / f"{entry.id}.damaged" / MANIFEST_FILE).exists()


def test_the_power_may_go_at_any_call_of_a_repair(store: CheckpointStore, tmp_path: Path) -> None:
    """What is left out keeps its files, for it has its other name before there is a catalog without it."""
    commit(store, 1)
    entry = commit(store, 2)
    manifest_of(store.root, entry).with_name(STATE_FILE).write_bytes(b"")
    (store.root / CATALOG_FILE).unlink()

    def repair() -> None:
        rebuild(store.root, without_damaged=True)

    for when, root in power_cuts(store.root, repair, tmp_path / "cuts", seeds=0):
        if not (root / CATALOG_FILE).exists():
            rebuild(root, without_damaged=True)
        opened(root).sweep()
        assert transactions(all_whole(root)) == [0, 1], when
        assert (root / "checkpoints" / f"{entry.id}.damaged" / WAITING_FILE).exists(), when


def test_a_copy_whose_journal_is_not_there_is_not_gone_back_to_unless_asked_for(
    store: CheckpointStore,
) -> None:
    first = commit(store, 1)
    commit(store, 2)
    copy, _ = go_back(store.root, first.id)
    directory = store.root / opened(store.root).catalog.journal
    (store.root / CATALOG_FILE).unlink()
    for found in ("empty", "missing"):
        shutil.rmtree(directory)
        if found == "empty":
            directory.mkdir()
        with pytest.raises(DamagedError, match="--without-damaged") as raised:
            rebuild(store.root, without_damaged=False)
        assert str(directory) in str(raised.value)
        assert copy.id in str(raised.value)
    rebuild(store.root, without_damaged=True)
    catalog = all_whole(store.root)
    assert (catalog.journal, catalog.line[-1].transaction) == ("journal", 2)
    assert [entry.aside for entry in catalog.checkpoints] == [False, False, False, True]


def test_without_any_journal_a_repair_lists_what_one_may_go_back_to(store: CheckpointStore) -> None:
    first = commit(store, 1)
    commit(store, 2)
    shutil.rmtree(store.root / "journal")
    (store.root / CATALOG_FILE).unlink()
    with pytest.raises(DamagedError, match="journal is missing"):
        rebuild(store.root, without_damaged=False)
    assert transactions(rebuild(store.root, without_damaged=True)) == [0, 1, 2]
    go_back(store.root, first.id)
    assert opened(store.root).restore(deep=True).checked.saved.transaction == 1


def test_no_catalog_is_made_where_no_checkpoint_is(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no checkpoint that is whole"):
        rebuild(tmp_path, without_damaged=True)
    assert files_of(tmp_path) == {}


def test_checkpoints_keep_their_order_when_the_clock_goes_back(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 2_000_000_000_000_000_000
    for number, back in enumerate([0, 0, 3600, 1], start=1):
        monkeypatch.setattr("time.time_ns", lambda back=back: now - back * 1_000_000_000)
        commit(store, number)
    (store.root / CATALOG_FILE).unlink()
    assert transactions(rebuild(store.root, without_damaged=False)) == [0, 1, 2, 3, 4]


def test_going_back_puts_the_others_aside(store: CheckpointStore) -> None:
    commit(store, 1)
    commit(store, 2)
    commit(store, 3)
    checked = check(store.root, store.catalog.checkpoints[1], deep=True)
    begin_journal(store.root, 10, "journal-2")
    entry = store.go_back(checked, "journal-2")
    again = opened(store.root)
    assert again.catalog.journal == "journal-2"
    assert [e.aside for e in again.catalog.checkpoints] == [True, True, True, True, False]
    assert again.catalog.line == (entry,)
    restored = again.restore(deep=True)
    assert (restored.checked.saved.transaction, restored.checked.saved.record) == (1, 10)
    assert restored.checked.manifest.traces == checked.manifest.traces
    commit(again, 2, 1, 7)
    commit(again, 3, 7, 8)
    again.retire(1)
    again.sweep()
    assert transactions(all_whole(store.root)) == [0, 1, 2, 3, 3]  # nobody deleted what was put aside
    (store.root / CATALOG_FILE).unlink()
    rebuilt = rebuild(store.root, without_damaged=False)
    assert rebuilt == opened(store.root).catalog == again.catalog
