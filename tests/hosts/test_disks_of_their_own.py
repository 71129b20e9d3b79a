"""Hosts that see neither the disk of the coordinator nor that of each other, as on machines of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from penstock.hosts.messages import SECRET_FILE
from penstock.hosts.private import kept_secret
from tests.hosts.site import PATIENCE, Site, addresses_of, kill, told

BULK = 20_000
"""Rows that the journal keeps in a file of their own."""


def blind_to(*directories: Path) -> tuple[str, ...]:
    """A command that runs another one which finds nothing in these directories."""
    hide = " && ".join(f"mount -t tmpfs none '{directory}'" for directory in directories)
    return "unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh"


@pytest.fixture
def mounts() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounts of their own need root, and the command 'unshare'")
    if subprocess.run([*blind_to(Path("/mnt")), "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of its own can be made here")


@pytest.mark.usefixtures("mounts")
@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(1200)
def test_rows_come_from_the_coordinator(tmp_path: Path) -> None:
    """Those in a record of the journal, those in a file of their own, and the same when they are replayed."""
    disks = [tmp_path / name for name in ("shop", "host 0", "host 1")]
    for disk in disks:
        disk.mkdir()
    kept_secret(disks[0] / SECRET_FILE)
    copy = shutil.copy(disks[0] / SECRET_FILE, tmp_path / SECRET_FILE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    within = {index: blind_to(disks[0], disks[2 - index]) for index in range(2)}
    url = ("--coordinator", f"http://127.0.0.1:{port}", "--secret-file", str(copy))
    config = {"coordinator": {"address": "127.0.0.1", "port": port}}
    with Site(tmp_path, addresses_of(2), config, within=within, more={0: url, 1: url}) as site:
        driver = site.drive(until=3, bulk=BULK, wait=True)
        assert told(driver, "views") == site.expected(3, BULK)
        kill(driver)
        driver = site.drive(until=3)
        assert told(driver, "began") == 4
        assert told(driver, "views") == site.expected(3, BULK)
        assert driver.wait(PATIENCE) == 0
        site.check_sink(3)
