"""How the service itself is: now, and at the times when that changed."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select

from penstock.service.errors import ApiError
from penstock.service.manager.clock import now, seconds_since
from penstock.service.manager.database import Database
from penstock.service.manager.schema import cluster_events
from penstock.service.manager.spares import Spares
from penstock.service.manager.supervisor import Supervisor

_log = logging.getLogger("penstock.manager")

KEPT = 1000
_EVERY_SECONDS = 600.0
_LOOK_SECONDS = 10.0
_SERVICES = ("api", "compiler", "runner")
_INFO = tuple(f"{service}_{kind}_info" for service in _SERVICES for kind in ("self", "resources"))


class Health:
    """Looks every few seconds; keeps what changed."""

    def __init__(self, database: Database, spares: Spares, supervisor: Supervisor) -> None:
        self._database = database
        self._spares = spares
        self._supervisor = supervisor
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock health", daemon=True)

    def start(self) -> None:
        self._look()
        self._thread.start()

    def end(self) -> None:
        self._ending.set()

    def now(self) -> dict[str, Any]:
        """The answer to `cluster_healthz`."""
        seen = self._seen()
        healthy = {service: seen[f"{service}_status"] == "Healthy" for service in _SERVICES}
        events = self.events("status")
        return {
            "all_healthy": all(healthy.values()),
            **{
                service: {
                    "healthy": healthy[service],
                    "message": seen[f"{service}_self_info"],
                    "checked_at": now(),
                    "unchanged_since": _unchanged_since(events, f"{service}_status"),
                }
                for service in _SERVICES
            },
        }

    def events(self, selector: str) -> list[dict[str, Any]]:
        """Those that are kept, the latest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(cluster_events).order_by(cluster_events.c.number.desc()))
            return [_shown(row._mapping, selector) for row in rows]

    def event(self, event_id: str, selector: str) -> dict[str, Any]:
        for found in self.events(selector):
            if event_id in ("latest", found["id"]):
                return found
        raise ApiError(
            404, "UnknownClusterMonitorEvent", f"Unknown event '{event_id}'", {"event_id": event_id}
        )

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            try:
                self._look()
            except Exception:
                _log.exception("the health of the service could not be recorded")

    def _look(self) -> None:
        seen = self._seen()
        last = next(iter(self.events("status")), None)
        changed = last is None or any(last[f"{name}_status"] != seen[f"{name}_status"] for name in _SERVICES)
        if not changed and last is not None and seconds_since(last["recorded_at"]) < _EVERY_SECONDS:
            return
        spares = self._spares.seen()
        mebibytes = sum(spare.rss_bytes for spare in spares) >> 20
        seen["compiler_resources_info"] = f"{len(spares)} spare runners with {mebibytes} MiB"
        row = {"id": str(uuid.uuid4()), "recorded_at": now(), "content": seen}
        with self._database.write() as connection:
            connection.execute(insert(cluster_events).values(row))
            oldest = (
                select(cluster_events.c.number)
                .order_by(cluster_events.c.number.desc())
                .offset(KEPT)
                .limit(1)
                .scalar_subquery()
            )
            connection.execute(delete(cluster_events).where(cluster_events.c.number <= oldest))

    def _seen(self) -> dict[str, str]:
        failure = self._spares.last_failure
        return {
            "api_status": "Healthy",
            "api_self_info": "answers",
            "compiler_status": "Healthy" if failure is None else "Unhealthy",
            "compiler_self_info": failure or "has or starts processes to compile with",
            "runner_status": "Healthy" if self._supervisor.is_healthy else "Unhealthy",
            "runner_self_info": "looks at the pipelines"
            if self._supervisor.is_healthy
            else "has not looked at the pipelines for a while",
        }


def _shown(row: Mapping[Any, Any], selector: str) -> dict[str, Any]:
    content = row["content"]
    answer = {
        "id": row["id"],
        "recorded_at": row["recorded_at"],
        "all_healthy": all(content[f"{service}_status"] == "Healthy" for service in _SERVICES),
        **{f"{service}_status": content[f"{service}_status"] for service in _SERVICES},
    }
    if selector == "all":
        answer.update({field: content.get(field, "") for field in _INFO})
    return answer


def _unchanged_since(events: list[dict[str, Any]], field: str) -> str:
    """When the latest run of equal events began."""
    since = now()
    for found in events:
        if found[field] != events[0][field]:
            break
        since = found["recorded_at"]
    return since
