"""What no person would send, made up by schemathesis from the OpenAPI document: no answer is a 500."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.service.managers import Manager

STREAMS = "logs|egress|time_series_stream"
"""These never end by themselves."""


@pytest.fixture(scope="module")
def document(shared: Manager) -> dict[str, Any]:
    found: dict[str, Any] = shared.http.get("/openapi.json").json()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [None, ["running", "stopped"]], ids=["any pipeline", "pipelines that exist"]
)
def test_no_request_makes_it_fail(
    names: list[str] | None, document: dict[str, Any], shared: Manager, tmp_path: Path
) -> None:
    excluded = STREAMS
    if names is not None:
        shared.start("running")
        shared.create("stopped")
        excluded += "|/stop|/start$|/clear"  # what is to stay as it is
        for operations in document["paths"].values():
            for operation in operations.values():
                for parameter in operation.get("parameters", []):
                    if parameter["name"] == "pipeline_name":
                        parameter["schema"] = {"type": "string", "enum": names}
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    done = subprocess.run(
        [
            *(Path(sys.executable).parent / "schemathesis", "run", tmp_path / "openapi.json"),
            *(
                "--url",
                shared.url,
                "--checks",
                "not_a_server_error,status_code_conformance",
                "--max-examples",
                "8",
            ),
            *("--phases", "coverage,fuzzing", "--request-timeout", "30", "--suppress-health-check", "all"),
            *("--exclude-path-regex", f"({excluded})", "--exclude-method", "DELETE", "--seed", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    # Those that are refused for good, or because the pipeline does not run, are answered with 501 and 503.
    failed = [line for line in done.stdout.splitlines() if line.startswith(("[500]", "[502]", "[504]"))]
    assert "Test cases:" in done.stdout, done.stdout + done.stderr
    assert not failed, done.stdout
    assert "Undocumented HTTP status code" not in done.stdout, done.stdout
    assert "Traceback" not in shared.log.read_text()
