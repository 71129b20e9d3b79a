"""Counters and latencies of a running pipeline."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

_RECENT = 1000


class Statistics:
    """Updated by the thread that runs transactions, read by any."""

    def __init__(
        self, rows: Mapping[str, int], saved: Mapping[str, Mapping[str, int]], hosts: int = 1
    ) -> None:
        """`hosts`: how many there are now. What another one took in when there were more goes to one of
        them."""
        self._lock = threading.Lock()
        self.rows: Counter[str] = Counter(rows)
        self.transactions = 0
        self._rows_in: Counter[str] = Counter(saved.get("rows_in"))
        self._errors: Counter[str] = Counter(saved.get("errors"))
        self._changes: Counter[str] = Counter(saved.get("changes"))
        self._hosts = hosts
        self._processed: Counter[str] = Counter()
        for host, count in saved.get("processed", {}).items():
            self._processed[str(int(host) % hosts)] += count
        self._latencies: deque[float] = deque(maxlen=_RECENT)

    def record(
        self,
        transactions: int,
        seconds: float | None,
        rows_in: Mapping[str, int],
        errors: Mapping[str, int],
        changes: Mapping[str, int],
        growth: Mapping[str, int],
        processed: Mapping[str, int],
    ) -> None:
        """One transaction more; `seconds` are those it took, unless it was replayed."""
        with self._lock:
            self.transactions = transactions
            if seconds is not None:
                self._latencies.append(seconds * 1000)
            self._rows_in.update(rows_in)
            self._errors.update(errors)
            self._changes.update(changes)
            self.rows.update(growth)
            self._processed.update(processed)

    def saved(self) -> dict[str, dict[str, int]]:
        """The counters that go on over a restart."""
        with self._lock:
            return {
                "rows_in": dict(self._rows_in),
                "errors": dict(self._errors),
                "changes": dict(self._changes),
                "processed": dict(self._processed),
            }

    def processed(self) -> list[int]:
        """Rows that each host took in."""
        with self._lock:
            return [self._processed[str(host)] for host in range(self._hosts)]

    def latencies(self) -> dict[str, float | None]:
        """Of the recent transactions, in milliseconds."""
        with self._lock:
            recent = sorted(self._latencies)
            last = self._latencies[-1] if self._latencies else None
        if not recent:
            return {"median": None, "p95": None, "last": None}
        return {"median": recent[len(recent) // 2], "p95": recent[int(len(recent) * 0.95)], "last": last}

    def table(self, name: str) -> dict[str, Any]:
        with self._lock:
            return {"rows_in": self._rows_in[name], "errors": self._errors[name], "rows": self.rows[name]}

    def view(self, name: str) -> dict[str, Any]:
        with self._lock:
            return {"changes": self._changes[name], "rows": self.rows[name]}
