"""The disks that tests use do what they say: a tool that forgets nothing would find nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.storage.disk import disk
from penstock.storage.files import make_directory, sync_directory, sync_file, write_file
from tests.disks import Act, FailingDisk, ForgetfulDisk, RecordingDisk, files_of, using


def write(path: Path, data: bytes, *, durable: bool = True) -> None:
    write_file(path, lambda file: file.write(data), durable=durable)


def test_a_recording_disk_has_every_call_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with using(RecordingDisk()) as recording:
        write(path, b"one")
        disk().remove(path)
    temporary = path.with_name(f"a.{os.getpid()}.tmp")
    assert [(call.act, call.path) for call in recording.calls] == [
        (Act.WRITE, temporary),
        (Act.SYNC, temporary),
        (Act.RENAME, path),
        (Act.SYNC, tmp_path),
        (Act.REMOVE, path),
    ]
    assert recording.calls[0].data == b"one"
    assert disk() is not recording


def test_a_failing_disk_fails_once_or_until_it_is_healed(tmp_path: Path) -> None:
    with using(FailingDisk(1, {Act.RENAME}, code=errno.EIO)):
        write(tmp_path / "a", b"1")
        with pytest.raises(OSError, match="Input/output error"):
            write(tmp_path / "b", b"2")
        write(tmp_path / "c", b"3")
    with using(FailingDisk(lasting=True)) as full:
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                write(tmp_path / "d", b"4")
        full.heal()
        write(tmp_path / "d", b"4")
    assert files_of(tmp_path) == {"a": b"1", "c": b"3", "d": b"4"}


def test_a_torn_write_leaves_half(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
    with using(FailingDisk(torn=True)), pytest.raises(OSError, match="No space left"):
        disk().write(descriptor, b"12345678")
    os.close(descriptor)
    assert (tmp_path / "a").read_bytes() == b"1234"


def test_a_power_cut_leaves_what_was_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "old").mkdir(parents=True)
    (root / "old" / "there").write_bytes(b"before")
    with using(ForgetfulDisk(root)) as forgetful:
        write(root / "whole", b"bytes and name")
        write(root / "old" / "empty", b"name, no bytes", durable=False)
        sync_directory(root / "old")
        disk().remove(root / "old" / "there")  # and the directory is not synced
        write(root / "old" / "another", b"may have the inode of the one before", durable=False)
        sync_file(root / "old" / "another")
        make_directory(root / "new" / "deep")
        (root / "new" / "deep" / "lost").write_bytes(b"by another process")
        (root / "nameless").write_bytes(b"bytes, no name")
        sync_file(root / "nameless")
        (root / "unknown").mkdir()
        write(root / "unknown" / "a", b"in a directory that nobody synced")
        forgetful.cut(tmp_path / "copy")
        forgetful.cut()
        left = {"whole": b"bytes and name", "old/empty": b"", "old/there": b"before"}
        assert files_of(root) == files_of(tmp_path / "copy") == left
        assert (root / "new" / "deep").is_dir()
        assert not (root / "unknown").exists()
        write(root / "later", b"1")
        forgetful.cut()
        assert files_of(root) == {**left, "later": b"1"}


def test_a_power_cut_forgets_a_rename_and_what_was_appended(tmp_path: Path) -> None:
    with using(ForgetfulDisk(tmp_path / "root")) as forgetful:
        make_directory(tmp_path / "root")
        path, log = tmp_path / "root" / "a", tmp_path / "root" / "log"
        write(path, b"old")
        write(log, b"1")
        write(path, b"new", durable=False)
        with log.open("ab") as file:
            file.write(b"2")
        forgetful.cut()
        assert files_of(tmp_path / "root") == {"a": b"old", "log": b"1"}


def test_by_chance_a_power_cut_leaves_more_than_was_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "gone").write_bytes(b"x")
    (root / "log").write_bytes(b"12")
    found: dict[str, set[bytes | None]] = {"new": set(), "gone": set(), "log": set()}
    with using(ForgetfulDisk(root)) as forgetful:
        write(root / "new", b"n", durable=False)
        disk().remove(root / "gone")
        with (root / "log").open("ab") as file:
            file.write(b"34")
        for seed in range(100):
            forgetful.cut(tmp_path / str(seed), seed=seed)
            left = files_of(tmp_path / str(seed))
            for name, seen in found.items():
                seen.add(left.get(name))
    assert found["gone"] == {None, b"x"}
    assert found["log"] == {b"12", b"123", b"1234"}
    assert found["new"] > {None, b"", b"n"}
