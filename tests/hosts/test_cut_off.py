"""A host in a network of its own is cut off: noticed, named, and taken back, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.running import wait_until
from tests.hosts.site import PATIENCE, Site, told

COORDINATOR, NEAR, FAR = "10.231.77.1", "10.231.77.2", "10.231.77.3"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Network:
    """A namespace at the other end of a cable that can be pulled."""

    def __init__(self) -> None:
        self.name = f"penstock-{os.getpid()}"
        self._cable = f"pen{os.getpid()}"
        ip("netns", "add", self.name)
        try:
            ip("link", "add", self._cable, "type", "veth", "peer", "name", "far", "netns", self.name)
            for address in (COORDINATOR, NEAR):
                ip("address", "add", f"{address}/24", "dev", self._cable)
            ip("-n", self.name, "address", "add", f"{FAR}/24", "dev", "far")
            ip("-n", self.name, "link", "set", "lo", "up")
            ip("-n", self.name, "link", "set", "far", "up")
            ip("link", "set", self._cable, "up")
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        ip("-n", self.name, "link", "set", "far", "down")

    def mend(self) -> None:
        ip("-n", self.name, "link", "set", "far", "up")

    def close(self) -> None:
        ip("netns", "delete", self.name)  # and the cable with it


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("networks of their own need root, and the command 'ip'")
    try:
        found = Network()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network of its own can be made here: {error.stderr.decode().strip()}")
    yield found
    found.close()


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(1200)
def test_a_host_that_is_cut_off_is_named_and_taken_back(tmp_path: Path, network: Network) -> None:
    there = {1: ("ip", "netns", "exec", network.name)}
    with Site(tmp_path, (NEAR, FAR), {"coordinator": {"address": COORDINATOR}}, within=there) as site:
        driver = site.drive(until=5, watch=True)
        assert told(driver, "transaction") == 1
        network.cut()
        assert told(driver, "lost") == [f"host 1 at {FAR}"]
        said = tmp_path / "host 1.log"
        wait_until(lambda: "Lost the coordinator" in said.read_text(), "that the host itself notices")
        assert "The Spark worker is ended" in said.read_text()
        network.mend()
        assert told(driver, "lost") == []
        wait_until(lambda: said.read_text().count("Joined") == 2, "that it joins again")
        assert told(driver, "views") == site.expected(5)
        assert driver.wait(PATIENCE) == 0
        site.check_sink(5)
