"""The support bundle: a zip file with what a maintainer needs to know of a pipeline."""

from __future__ import annotations

import copy
import io
import json
import platform
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock._version import __version__
from penstock.service.errors import ApiError
from penstock.service.manager.answers import told
from penstock.service.manager.events import events
from penstock.service.manager.pipelines import Row
from penstock.service.manager.runner_client import RunnerUnreachableError
from penstock.service.manager.service import Service

_LOG_BYTES = 4 << 20
_LEFT_OUT = "(left out)"

_OF_RUNNER = ("stats", "metrics")
"""Parts that only the runner has."""


def support_bundle(service: Service, name: str, wanted: Mapping[str, bool]) -> bytes:
    """The file; a part that cannot be had is a line in `missing.txt`."""
    row = service.pipelines.get(name)
    content = io.BytesIO()
    missing: list[str] = []
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        if wanted["pipeline_config"]:
            bundle.writestr("pipeline.json", _json(_without_secrets(row)))
        if wanted["system_config"]:
            bundle.writestr("system.json", _json(_system(service)))
        if wanted["pipeline_events"]:
            with service.database.read() as connection:
                bundle.writestr("events.json", _json(events(connection, row["id"], "all")))
        if wanted["logs"]:
            bundle.writestr("pipeline.log", service.logs.tail(row["id"], _LOG_BYTES))
        for part in _OF_RUNNER:
            if wanted[part]:
                _add_from_runner(service, row, part, bundle, missing)
        if wanted["dataflow_graph"]:
            try:
                bundle.writestr("dataflow_graph.json", _json(service.compiler.explain(row["program_code"])))
            except ApiError as error:
                missing.append(f"dataflow_graph: {error.message}")
        bundle.writestr("missing.txt", "\n".join(missing))
    return content.getvalue()


def _add_from_runner(
    service: Service, row: Row, path: str, bundle: zipfile.ZipFile, missing: list[str]
) -> None:
    runner = service.runners.get(row["runner_id"])
    if runner is None:
        missing.append(f"{path}: the pipeline does not run")
        return
    try:
        answer = service.client.get(runner, f"/{path}")
    except RunnerUnreachableError as error:
        missing.append(f"{path}: {error}")
        return
    if answer.is_success:
        kind = "json" if "json" in answer.headers.get("content-type", "") else "txt"
        bundle.writestr(f"{path}.{kind}", answer.content)
    else:
        missing.append(f"{path}: the runner answered {answer.status_code}")


def _without_secrets(row: Row) -> dict[str, Any]:
    """The values of the environment may be secrets, and so may the keys of an object store: only names are
    told."""
    told_row = told(row)
    config = copy.deepcopy(told_row["runtime_config"])
    config["env"] = dict.fromkeys(config["env"], _LEFT_OUT)
    backend = (config.get("storage") or {}).get("backend") or {}
    sync = (backend.get("config") or {}).get("sync") or {}
    sync |= {name: _LEFT_OUT for name in ("access_key", "secret_key") if name in sync}
    return {**told_row, "runtime_config": config}


def _system(service: Service) -> dict[str, Any]:
    return {
        "penstock": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "health": service.health.now(),
        "spare_runners": [asdict(spare) for spare in service.spares.seen()],
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)
