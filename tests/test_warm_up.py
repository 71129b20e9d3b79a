"""The archive of Spark's classes: `penstock warm-up` makes it, and pipelines start with it or without."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.engine.archive import SWITCHED_OFF, archive_path, using_archive

STARTED = textwrap.dedent(
    """
    import penstock
    program = "CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT count(*) AS n FROM t"
    with penstock.Pipeline("warm", program=program, config={"workers": 1}) as pipeline:
        pipeline.insert("t", [{"id": 1}])
        pipeline.flush()
        assert pipeline.query("SELECT n FROM v").to_pylist() == [{"n": 1}]
        java = pipeline.spark._jvm.java.lang.ProcessHandle.current().pid()
        with open(f"/proc/{java}/maps") as maps:
            print("mapped" if any("/penstock/spark-" in line for line in maps) else "not mapped")
    """
)


def run(cache: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != SWITCHED_OFF}
    return subprocess.run(
        [sys.executable, *args],
        env={**env, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_the_command_makes_an_archive_and_a_pipeline_starts_with_it(tmp_path: Path) -> None:
    cache = tmp_path / "my cache"
    done = run(cache, "-m", "penstock.cli", "warm-up")
    assert done.returncode == 0, done.stderr
    assert "Spark starts faster from now on" in done.stdout
    (archive,) = (cache / "penstock").iterdir()
    assert archive.suffix == ".jsa"
    again = run(cache, "-m", "penstock.cli", "warm-up")
    assert again.stdout.startswith("Nothing to do")
    started = run(cache, "-c", STARTED)
    assert started.stdout == "mapped\n", started.stderr
    # One that does not fit is not used, and nothing is said about it.
    content = archive.read_bytes()
    archive.unlink()
    archive.write_bytes(content.replace(b" Server VM (", b" Server VM [", 1))  # which Java made it
    mismatched = run(cache, "-c", STARTED)
    assert mismatched.stdout == "not mapped\n", mismatched.stderr
    assert not any(word in mismatched.stderr.lower() for word in ("archive", "cds", "shared"))


def test_a_failure_says_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = run(file, "-m", "penstock.cli", "warm-up")
    assert done.returncode == 1
    assert "no archive was made: [Errno 20] Not a directory" in done.stderr


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(SWITCHED_OFF, raising=False)
    path = archive_path()
    assert path is not None
    assert using_archive() == {}
    path.parent.mkdir()
    path.touch()
    assert str(path) in "".join(using_archive().values())
    monkeypatch.setenv(SWITCHED_OFF, "1")
    assert using_archive() == {}


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv(SWITCHED_OFF, raising=False)
    assert archive_path() not in (None, before)
