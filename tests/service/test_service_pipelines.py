"""Pipelines are made, changed and deleted by the rules of the reference."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.service.managers import Manager

REFERENCE_FIELDS = {
    "id",
    "name",
    "description",
    "tags",
    "created_at",
    "version",
    "platform_version",
    "runtime_config",
    "program_code",
    "udf_rust",
    "udf_toml",
    "program_config",
    "program_version",
    "program_status",
    "program_status_since",
    "program_error",
    "program_info",
    "deployment_error",
    "refresh_version",
    "storage_status",
    "storage_status_details",
    "deployment_id",
    "deployment_initial",
    "deployment_status",
    "deployment_status_since",
    "deployment_desired_status",
    "deployment_desired_status_since",
    "deployment_resources_status",
    "deployment_resources_status_details",
    "deployment_resources_status_since",
    "deployment_resources_desired_status",
    "deployment_resources_desired_status_since",
    "deployment_runtime_status",
    "deployment_runtime_status_details",
    "deployment_runtime_status_since",
    "deployment_runtime_desired_status",
    "deployment_runtime_desired_status_since",
}


def new_name() -> str:
    return f"p-{uuid.uuid4().hex[:8]}"


def code(answer: Any) -> tuple[int, str]:
    """The status and the code of a refusal, which has the reference's form."""
    body = answer.json()
    assert set(body) == {"message", "error_code", "details"}, body
    assert body["message"]
    return answer.status_code, body["error_code"]


def test_a_new_pipeline_has_all_fields(shared: Manager) -> None:
    name = new_name()
    body = {"name": name, "program_code": "good", "description": "d", "tags": ["team:ml"]}
    row = shared.post("", json=body).json()
    assert set(row) == REFERENCE_FIELDS
    assert (row["version"], row["program_version"], row["refresh_version"]) == (1, 1, 1)
    assert (row["description"], row["tags"]) == ("d", ["team:ml"])
    assert (row["deployment_status"], row["deployment_desired_status"]) == ("Stopped", "Stopped")
    assert (row["storage_status"], row["program_status"]) == ("Cleared", "Pending")
    assert row["runtime_config"]["workers"] == 8
    assert row["runtime_config"]["fault_tolerance"] == {"model": "none", "checkpoint_interval_secs": 60}
    assert row["program_config"]["cache"] is True


def test_selectors(shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    rest = {"program_code", "udf_rust", "udf_toml", "program_config", "program_error", "program_info"}
    rest |= {"runtime_config"}
    status = shared.http.get(f"/v0/pipelines/{name}", params={"selector": "status"}).json()
    assert set(status) == REFERENCE_FIELDS - rest
    listed = shared.http.get("/v0/pipelines", params={"selector": "status_with_connectors"}).json()
    found = next(row for row in listed if row["name"] == name)
    assert set(found) == (REFERENCE_FIELDS - rest) | {"connectors"}
    assert code(shared.http.get("/v0/pipelines", params={"selector": "x"})) == (
        400,
        "InvalidRequestParameter",
    )


def test_versions_count_what_changes(shared: Manager) -> None:
    name = new_name()
    before = shared.create(name)
    assert (before["version"], before["program_version"]) == (1, 1)
    assert before["refresh_version"] > 1
    same = shared.http.patch(
        f"/v0/pipelines/{name}", json={"program_code": "good", "description": None}
    ).json()
    assert same == before
    described = shared.http.patch(f"/v0/pipelines/{name}", json={"description": "new"}).json()
    assert (described["version"], described["program_version"]) == (2, 1)
    assert described["program_status"] == "Success"
    changed = shared.http.patch(f"/v0/pipelines/{name}", json={"program_code": "other"}).json()
    assert (changed["version"], changed["program_version"]) == (3, 2)
    assert (changed["program_status"], changed["program_info"]) == ("Pending", None)
    shared.wait(name, lambda row: row["program_status"] == "Success")


def test_put_makes_and_changes(shared: Manager) -> None:
    name = new_name()
    body = {"name": name, "program_code": "good", "description": "first"}
    assert shared.http.put(f"/v0/pipelines/{name}", json=body).status_code == 201
    again = shared.http.put(f"/v0/pipelines/{name}", json={"name": name, "program_code": "good"})
    assert again.status_code == 200
    assert (again.json()["description"], again.json()["version"]) == ("", 2)
    other = shared.http.put(f"/v0/pipelines/{new_name()}", json=body)
    assert code(other) == (400, "CannotRenameNonExistingPipeline")


def test_names(shared: Manager) -> None:
    name, other = new_name(), new_name()
    shared.create(name)
    assert code(shared.post("", json={"name": name, "program_code": ""})) == (409, "DuplicateName")
    shared.create(other)
    assert code(shared.http.patch(f"/v0/pipelines/{other}", json={"name": name})) == (409, "DuplicateName")
    third = new_name()
    assert shared.http.patch(f"/v0/pipelines/{other}", json={"name": third}).json()["name"] == third
    for bad in ("", "-a", "a_", "a b", "ä", "a/b", "../x"):
        answer = shared.post("", json={"name": bad, "program_code": ""})
        assert code(answer) == (400, "NameDoesNotMatchPattern")
        assert answer.json()["details"]["name"] == bad
    assert code(shared.post("", json={"name": "a" * 101, "program_code": ""})) == (400, "TooLongName")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/start"),
        ("POST", "/stop"),
        ("POST", "/pause"),
        ("POST", "/clear"),
        ("POST", "/dismiss_error"),
        ("POST", "/ingress/t"),
        ("POST", "/egress/t"),
        ("GET", "/query"),
        ("GET", "/stats"),
        ("GET", "/logs"),
        ("GET", "/events"),
        ("GET", "/events/latest"),
        ("GET", "/heap_profile"),
        ("POST", "/update_runtime"),
    ],
)
def test_unknown_pipelines(shared: Manager, method: str, path: str) -> None:
    body = {} if method == "PATCH" else None
    answer = shared.http.request(method, f"/v0/pipelines/none{path}", json=body)
    assert code(answer) == (404, "UnknownPipelineName")
    assert answer.json()["details"] == {"pipeline_name": "none"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"name": "x"', ""),
        ("", ""),
        ("[]", ""),
        ('{"name": "x"}', "program_code"),
        ('{"name": 5, "program_code": ""}', "name"),
        ('{"name": "x", "program_code": null}', "program_code"),
        ('{"name": "x", "program_code": "", "program_cod": ""}', "program_cod"),
        ('{"name": "x", "program_code": "", "tags": "a"}', "tags"),
        ('{"name": "x", "program_code": "", "tags": [1]}', "tags.0"),
        ('{"name": "x", "program_code": "", "runtime_config": []}', "runtime_config"),
    ],
)
def test_bodies_that_are_wrong(shared: Manager, body: str, field: str) -> None:
    answer = shared.post("", content=body, headers={"Content-Type": "application/json"})
    assert code(answer) == (400, "InvalidRequestBody")
    assert field in [problem["field"] for problem in answer.json()["details"]["problems"]]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"wokers": 1}, "wokers"),
        ({"workers": "8"}, "workers"),
        ({"workers": 0}, "workers"),
        ({"hosts": 0}, "hosts"),
        ({"hosts": 2, "replicas": 2, "fault_tolerance": {"model": "exactly_once"}}, ""),
        ({"hosts": 2, "coordinator": {"adress": "10.0.0.1"}}, ""),
        ({"hosts": 2, "coordinator": {"port": 70000}}, ""),
        ({"hosts": 2, "coordinator": {"master": "yarn"}}, ""),
        ({"coordinator": {"port": 40100}}, ""),
        ({"fault_tolerance": {"model": "maybe"}}, "fault_tolerance.model"),
        ({"fault_tolerance": {"modle": "none"}}, "fault_tolerance.modle"),
        ({"storage": {"compression": "zip"}}, "storage.compression"),
        ({"env": {"LD_PRELOAD": "/tmp/x.so"}}, "env"),
        ({"spark": {"spark.driver.extraJavaOptions": "-x"}}, "spark"),
        ({"clock_resolution": "fast"}, ""),
    ],
)
def test_runtime_configurations_that_are_wrong(shared: Manager, config: Any, field: str) -> None:
    answer = shared.post("", json={"name": new_name(), "program_code": "", "runtime_config": config})
    assert code(answer) == (400, "InvalidRuntimeConfig")
    assert [problem["field"] for problem in answer.json()["details"]["error"]] == [field]


def test_program_configurations_that_are_wrong(shared: Manager) -> None:
    body = {"name": new_name(), "program_code": "", "program_config": {"profil": "dev"}}
    answer = shared.post("", json=body)
    assert code(answer) == (400, "InvalidProgramConfig")
    assert "profil" in answer.json()["message"]


def test_newer_names_of_settings(shared: Manager) -> None:
    name = new_name()
    config = {
        "clock_resolution": "1.5ms",
        "max_rss": "2Gi",
        "fault_tolerance": {"model": "exactly_once", "checkpoint_interval": None},
        "resources": {"memory_max": "16G", "volume_attributes_class": None},
        "storage": True,
    }
    row = shared.create(name, "good", **config)
    stored = row["runtime_config"]
    assert stored["clock_resolution_usecs"] == 1500
    assert stored["max_rss_mb"] == 2148
    assert stored["fault_tolerance"] == {"model": "exactly_once", "checkpoint_interval_secs": None}
    assert stored["resources"]["memory_mb_max"] == 16000
    # What is told can be given back.
    again = shared.http.patch(f"/v0/pipelines/{name}", json={"runtime_config": stored}).json()
    assert again["version"] == 1


def test_the_reference_example_is_told_as_it_is(shared: Manager) -> None:
    path = Path(__file__).parent / "reference_runtime_config.json"
    example = json.loads(path.read_text())
    row = shared.create(new_name(), "good", workers=16, tracing_endpoint_jaeger="")
    assert row["runtime_config"] == example


def test_programs_that_do_not_compile(shared: Manager) -> None:
    name = new_name()
    row = shared.create(name, "bad")
    assert row["program_status"] == "SqlError"
    compilation = row["program_error"]["sql_compilation"]
    assert compilation["exit_code"] == 1
    assert compilation["messages"][0]["start_line_number"] == 1
    assert shared.post(f"/{name}/start").status_code == 202
    failed = shared.wait(name, lambda row: row["deployment_error"] is not None)
    assert failed["deployment_error"]["error_code"] == "StartFailedDueToFailedCompilation"
    assert failed["deployment_desired_status"] == "Stopped"


def test_a_start_waits_for_the_compiler(shared: Manager) -> None:
    name = new_name()
    shared.post("", json={"name": name, "program_code": "slow"})
    assert shared.post(f"/{name}/start").status_code == 202
    assert shared.get(name)["deployment_desired_status"] == "Running"
    shared.wait(name, lambda row: row["deployment_status"] == "Running")


def test_what_is_refused_while_it_runs(shared: Manager) -> None:
    name = new_name()
    shared.start(name)
    patch = shared.http.patch(f"/v0/pipelines/{name}", json={"description": "x"})
    assert code(patch) == (400, "UpdateRestrictedToStopped")
    assert code(shared.http.delete(f"/v0/pipelines/{name}")) == (400, "DeleteRestrictedToFullyStopped")
    assert code(shared.post(f"/{name}/clear")) == (400, "StorageStatusImmutableUnlessStopped")
    assert shared.post(f"/{name}/start").status_code == 202
    paused = shared.post(f"/{name}/start", params={"initial": "paused"})
    assert code(paused) == (400, "InitialImmutableUnlessStopped")
    policy = shared.post(f"/{name}/start", params={"bootstrap_policy": "reject"})
    assert code(policy) == (400, "BootstrapPolicyImmutableUnlessStopped")
    shared.post(f"/{name}/stop")
    assert code(shared.post(f"/{name}/start")) == (400, "IllegalPipelineAction")
    shared.wait_stopped(name)
    workers = {"runtime_config": {"workers": 3, "fault_tolerance": {}}}
    bound = shared.http.patch(f"/v0/pipelines/{name}", json=workers)
    assert code(bound) == (400, "EditRestrictedToClearedStorage")
    assert bound.json()["details"] == {
        "not_allowed": ["`runtime_config.workers`", "`runtime_config.fault_tolerance`"]
    }
    assert shared.http.patch(f"/v0/pipelines/{name}", json={"program_code": "new"}).status_code == 200


def test_starts_that_are_wrong(shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    assert code(shared.post(f"/{name}/start", params={"initial": "fast"})) == (400, "InvalidRequestParameter")
    assert code(shared.post(f"/{name}/start", params={"initial": "standby"})) == (
        400,
        "InitialStandbyNotAllowed",
    )
    assert code(shared.post(f"/{name}/start", params={"bootstrap_policy": "x"}))[0] == 400
    both = {"silent_bootstrap": "true", "concurrent_bootstrap": "true"}
    assert code(shared.post(f"/{name}/start", params=both)) == (400, "InvalidBootstrapOptions")
    assert code(shared.post(f"/{name}/stop", params={"force": "maybe"})) == (400, "InvalidRequestParameter")


def test_stop_without_storage(shared: Manager) -> None:
    name = new_name()
    shared.start(name, storage=False)
    assert code(shared.post(f"/{name}/stop")) == (405, "UnsupportedPipelineAction")
    assert shared.post(f"/{name}/stop", params={"force": "true"}).status_code == 202
    shared.wait_stopped(name)


def test_stop_of_a_stopped_pipeline_is_accepted(shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    assert shared.post(f"/{name}/stop").status_code == 202
    assert shared.post(f"/{name}/stop", params={"force": "true"}).status_code == 202
    assert shared.get(name)["deployment_status"] == "Stopped"


def test_events(shared: Manager) -> None:
    name = new_name()
    shared.start(name)
    shared.post(f"/{name}/stop", params={"force": "true"})
    shared.wait_stopped(name)
    events = shared.http.get(f"/v0/pipelines/{name}/events").json()
    seen = [event["deployment_resources_status"] for event in reversed(events)]
    order = [status for at, status in enumerate(seen) if at == 0 or status != seen[at - 1]]
    assert order == ["Stopped", "Provisioning", "Provisioned", "Stopping", "Stopped"]
    latest = shared.http.get(f"/v0/pipelines/{name}/events/latest", params={"selector": "all"}).json()
    assert latest["event_id"] == events[0]["event_id"]
    assert "deployment_error" in latest
    one = shared.http.get(f"/v0/pipelines/{name}/events/{events[-1]['event_id']}").json()
    assert one == events[-1]
    assert code(shared.http.get(f"/v0/pipelines/{name}/events/x"))[0] == 400
    assert code(shared.http.get(f"/v0/pipelines/{name}/events/{uuid.uuid4()}"))[0] == 404


def test_validate_and_diff(shared: Manager) -> None:
    good = shared.http.post("/v0/validate_program", json={"program_code": "good"}).json()
    assert "schema" in good["Success"]["program_info"]
    bad = shared.http.post("/v0/validate_program", json={"program_code": "bad"}).json()
    assert bad["SqlError"]["info"]["messages"][0]["message"] == "bad program"
    name = new_name()
    shared.create(name)
    diff = shared.post(f"/{name}/diff", json={"program_code": "new"})
    assert diff.json()["program_diff"]["modified_views"] == ["good -> new"]
    broken = new_name()
    shared.create(broken, "bad")
    assert code(shared.post(f"/{broken}/diff", json={})) == (404, "ProgramNotCompiled")


# -- object stores --------------------------------------------------------------------------------


def _with_store(**sync: object) -> dict[str, object]:
    return {"storage": {"backend": {"name": "file", "config": {"sync": {"bucket": "b", **sync}}}}}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (_with_store(standby=True), "initial=standby instead"),
        (_with_store(access_key="k"), "secret_key is missing"),
        (_with_store(read_bucket="c"), "no effect without start_from_checkpoint"),
        (_with_store(flags=["--fast"]), "rclone, which is not used"),
        (_with_store(push_interval=5) | {"fault_tolerance": {"checkpoint_interval_secs": 0}}, "hold_outputs"),
    ],
)
def test_an_object_store_that_makes_no_sense_is_refused_at_once(
    shared: Manager, config: dict[str, object], text: str
) -> None:
    body = {"name": new_name(), "program_code": "", "runtime_config": config}
    answer = shared.http.post("/v0/pipelines", json=body)
    assert code(answer) == (400, "InvalidRuntimeConfig")
    assert text in answer.json()["message"]


def test_a_standby_needs_something_to_follow(shared: Manager) -> None:
    for sync, expected in (({}, 400), ({"start_from_checkpoint": "latest"}, 202)):
        name = new_name()
        body = {"name": name, "program_code": "", "runtime_config": _with_store(**sync)}
        assert shared.http.post("/v0/pipelines", json=body).status_code == 201
        assert shared.post(f"/{name}/start", params={"initial": "standby"}).status_code == expected
