"""A connection to PostgreSQL whose every call ends in a bounded time."""

from __future__ import annotations

from time import monotonic
from typing import Any

from psycopg import Connection, OperationalError
from psycopg.abc import RV, PQGen
from psycopg.waiting import Ready

SECONDS = 20
"""A server that lives ends a statement after so many."""

_GRACE = 5

SETTINGS = {
    "connect_timeout": 10,
    "options": f"-c statement_timeout={SECONDS}s -c lock_timeout={SECONDS}s -c synchronous_commit=on",
    # Of several servers, or of one whose standby takes over, the one that can be written to.
    "target_session_attrs": "read-write",
    # A connection that is idle while its server vanishes is found out meanwhile, not by the next call.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": SECONDS * 1000,
}


class BoundedConnection(Connection[Any]):
    """Gives up a server that is silent: one that hangs, or a proxy that keeps the connection of a dead one,
    is alive for all that the network knows."""

    def wait(self, gen: PQGen[RV], *args: Any, **more: Any) -> RV:
        return super().wait(self._until(gen, monotonic() + SECONDS + _GRACE), *args, **more)

    def _until(self, gen: PQGen[RV], end: float) -> PQGen[RV]:
        """The same, as long as it is not too late. It is asked every now and then, whatever comes."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready == Ready.NONE and monotonic() > end:
                    self.close()
                    raise OperationalError(f"the server said nothing for {SECONDS + _GRACE} seconds")
                wanted = gen.send(ready)
        except StopIteration as stop:
            found: RV = stop.value
            return found
