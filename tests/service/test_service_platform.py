"""What the service tells of itself, and what it refuses."""

from __future__ import annotations

import io
import zipfile

from tests.service.managers import Manager, wait_for
from tests.service.test_service_pipelines import code, new_name


def test_configuration(shared: Manager) -> None:
    found = shared.http.get("/v0/config").json()
    assert found["edition"] == "Enterprise"
    assert shared.http.get("/config/authentication").json() == {}
    assert shared.http.get("/v0/config/demos").json() == []
    session = shared.http.get("/v0/config/session").json()
    assert (session["tenant_name"], session["role"]) == ("default", "write")


def test_health(shared: Manager) -> None:
    found = shared.http.get("/v0/cluster_healthz")
    assert found.status_code == 200
    body = found.json()
    assert body["all_healthy"]
    assert set(body["runner"]) == {"healthy", "message", "checked_at", "unchanged_since"}
    assert shared.http.get("/readyz").json() == {"status": "ready"}
    events = shared.http.get("/v0/cluster/events").json()
    assert events[0]["all_healthy"]
    latest = shared.http.get("/v0/cluster/events/latest", params={"selector": "all"}).json()
    assert latest["id"] == events[0]["id"]
    assert "spare" in latest["compiler_resources_info"]
    assert code(shared.http.get("/v0/cluster/events/none"))[0] == 404


def test_metrics_of_the_manager_and_of_pipelines(shared: Manager) -> None:
    name = new_name()
    shared.start(name)
    wait_for(
        lambda: "penstock_spare_runners 1" in shared.http.get("/v0/metrics").text, 10, lambda: "no spare"
    )
    found = shared.http.get("/v0/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    assert 'penstock_pipelines{status="Running"} 1' in found.text
    assert "penstock_spare_runners_rss_bytes 128974848" in found.text
    assert f'stand_in{{pipeline="{name}"}} 1' in found.text


def test_what_makes_no_sense_is_refused(shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    for method, path in (
        ("GET", "/v0/tenants"),
        ("POST", "/v0/tenant/users"),
        ("GET", "/v0/oidc_trust"),
        ("GET", f"/v0/pipelines/{name}/heap_profile"),
        ("POST", f"/v0/pipelines/{name}/samply_profile"),
        ("POST", f"/v0/pipelines/{name}/update_runtime"),
    ):
        assert code(shared.http.request(method, path)) == (501, "NotImplemented")


def test_paths_and_methods_that_do_not_exist(shared: Manager) -> None:
    assert code(shared.http.get("/v0/nothing")) == (404, "NotFound")
    assert code(shared.http.put("/v0/pipelines")) == (405, "MethodNotAllowed")
    assert code(shared.http.get("/v0%2Fpipelines/x/y/z")) == (404, "NotFound")


def test_the_document_has_every_route_of_the_reference(shared: Manager) -> None:
    paths = shared.http.get("/openapi.json").json()["paths"]
    assert len(paths) >= 60
    for path in (
        "/v0/pipelines/{pipeline_name}/ingress/{table_name}",
        "/v0/validate_program",
        "/v0/api_keys",
    ):
        assert path in paths
    error = {"$ref": "#/components/schemas/ErrorResponse"}
    for operations in paths.values():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            assert operation["responses"]["404"]["content"]["application/json"]["schema"] == error
    parameters = paths["/v0/pipelines/{pipeline_name}/query"]["get"]["parameters"]
    assert {parameter["name"] for parameter in parameters} == {"pipeline_name", "sql", "format"}


def test_support_bundle(shared: Manager) -> None:
    name = new_name()
    shared.start(name, env={"WORD": "hidden-from-all"})
    answer = shared.http.get(f"/v0/pipelines/{name}/support_bundle", params={"metrics": "false"})
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as bundle:
        names = set(bundle.namelist())
        assert {"pipeline.json", "events.json", "pipeline.log", "stats.json", "system.json"} <= names
        assert "metrics.txt" not in names
        assert f"deployed {name}" in bundle.read("pipeline.log").decode()
        assert all(b"hidden-from-all" not in bundle.read(one) for one in names)
    shared.post(f"/{name}/stop", params={"force": "true"})
    shared.wait_stopped(name)
    stopped = shared.http.get(f"/v0/pipelines/{name}/support_bundle")
    with zipfile.ZipFile(io.BytesIO(stopped.content)) as bundle:
        assert "stats: the pipeline does not run" in bundle.read("missing.txt").decode()
