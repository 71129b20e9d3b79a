"""The measurements, each of a service of its own or of one that is warm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import httpx

from benchmarks.service.client import RAW, Client, served
from benchmarks.service.rows import bodies, line, totals

Report = Callable[[], None]

CLIENTS = 50
BODY_LINES = 20_000
_SECONDS = 20
UNCOUNTED = 5
"""The first rows of a pipeline compile its plans, and are not counted."""


@dataclass(frozen=True)
class Measured:
    """All of one run, in seconds and rows per second."""

    warm: list[float]
    cold: list[float]
    one_row: list[float]
    one_client: float
    many_clients: float
    bulk: float
    memory: int
    spare_memory: int
    correct: bool

    @property
    def batching(self) -> float:
        return self.many_clients / self.one_client


def cold_starts(directory: Path, starts: int, report: Report) -> list[float]:
    """Without a spare: the process, Python, Spark and the pipeline."""
    found = []
    with served(directory, "--spares", "0") as url:
        client = Client(url, "cold")
        client.create()
        _until(
            lambda: _metric(url, "penstock_spare_runners") == 0
        )  # the process that compiled the program is let go of after a while
        for _ in range(starts):
            found.append(client.start())
            client.stop()
            client.clear()
            report()
    return found


def measure(directory: Path, starts: int, rows: int, bulk: int, report: Report) -> Measured:
    cold = cold_starts(directory / "cold", starts, report)
    with served(directory / "warm", "--spares", "1") as url:
        client = Client(url, "bench")
        client.create()
        warm = []
        for number in range(starts):
            if number:
                client.stop()
                client.clear()
            _until(lambda: _metric(url, "penstock_spare_runners_warm") == 1)
            time.sleep(2)  # it is up; let it be idle
            warm.append(client.start())
            report()
        # Until it is up the next spare shares the processors with the pipeline.
        _until(lambda: _metric(url, "penstock_spare_runners_warm") == 1)
        count = 0
        one_row = []
        for number in range(rows + UNCOUNTED):
            began = time.monotonic()
            client.push(line(count).encode())
            count += 1
            while client.query("SELECT sum(n) AS n FROM totals")[0]["n"] != count:
                pass
            if number >= UNCOUNTED:
                one_row.append(time.monotonic() - began)
        report()
        one_client, count = _throughput(client, 1, count)
        report()
        many_clients, count = _throughput(client, CLIENTS, count)
        report()
        began = time.monotonic()
        tokens = [client.push(body) for body in bodies(count, bulk, BODY_LINES)]
        client.wait(tokens[-1])
        rate = bulk / (time.monotonic() - began)
        count += bulk
        report()
        correct = client.totals() == totals(count)
        spare = _metric(url, "penstock_spare_runners_rss_bytes")
        memory = client.memory()
        return Measured(warm, cold, one_row, one_client, many_clients, rate, memory, spare, correct)


def _throughput(client: Client, clients: int, first: int) -> tuple[float, int]:
    """Rows per second that are pushed one by one and waited for, and the number of the next row."""
    return asyncio.run(_pushed(client, clients, first))


async def _pushed(client: Client, clients: int, first: int) -> tuple[float, int]:
    """Clients as light as possible: this machine is theirs and the service's."""
    numbers = iter(range(first, 1 << 62))
    began = time.monotonic()
    done = 0

    async def work(http: aiohttp.ClientSession) -> None:
        nonlocal done
        while time.monotonic() < began + _SECONDS:
            pushed = {"url": f"{client.path}/ingress/events", "params": RAW}
            async with http.post(**pushed, data=line(next(numbers)).encode()) as answer:
                answer.raise_for_status()
                token = (await answer.json())["token"]
            status = 202
            while status == 202:
                async with http.get(f"{client.path}/completion_status", params={"token": token}) as answer:
                    answer.raise_for_status()
                    status = answer.status
            done += 1

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(client.url, connector=connector) as http:
        await asyncio.gather(*(work(http) for _ in range(clients)))
    return done / (time.monotonic() - began), first + done


def _metric(url: str, name: str) -> int:
    """A figure of the manager."""
    text = httpx.get(f"{url}/v0/metrics", trust_env=False).text
    return next(int(float(found.split()[-1])) for found in text.splitlines() if found.startswith(name + " "))


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.1)
