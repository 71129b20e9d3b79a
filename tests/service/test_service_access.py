"""API keys, roles, and who may ask without one."""

from __future__ import annotations

import stat

from tests.service.conftest import StartManager
from tests.service.managers import Manager
from tests.service.test_service_pipelines import code


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_keys_are_required(start_manager: StartManager) -> None:
    manager = start_manager(spares=0, auth=True)
    for headers in (
        {"Authorization": ""},
        bearer("apikey:wrong"),
        bearer("x"),
        {"Authorization": "Basic eDp5"},
    ):
        for path in ("/v0/pipelines", "/v0/config", "/v0/metrics", "/openapi.json", "/v0/none"):
            answer = manager.http.get(path, headers=headers)
            assert code(answer)[0] == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert code(manager.http.post("/v0/pipelines", headers=headers, json={}))[0] == 401
    assert manager.http.get("/config/authentication", headers={"Authorization": ""}).json() == {}
    assert manager.http.get("/healthz", headers={"Authorization": ""}).status_code == 200
    assert manager.http.get("/v0/pipelines").json() == []


def test_the_first_key_is_for_the_owner_only(start_manager: StartManager) -> None:
    manager = start_manager(spares=0, auth=True)
    path = manager.directory / "first-api-key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text().strip()
    assert key not in manager.log.read_text()
    for file in manager.directory.glob("manager.db*"):
        assert key.encode() not in file.read_bytes()


def test_roles(start_manager: StartManager) -> None:
    manager = start_manager(spares=0, auth=True)
    made = manager.http.post("/v0/api_keys", json={"name": "viewer", "role": "read"})
    assert made.status_code == 201
    key = made.json()["api_key"]
    assert key.startswith("apikey:")
    reader = bearer(key)
    assert manager.http.get("/v0/pipelines", headers=reader).status_code == 200
    assert manager.http.get("/v0/config/session", headers=reader).json()["role"] == "read"
    body = {"name": "p", "program_code": ""}
    assert code(manager.http.post("/v0/pipelines", headers=reader, json=body)) == (403, "InsufficientRole")
    assert code(manager.http.get("/v0/api_keys", headers=reader)) == (403, "InsufficientRole")
    assert code(manager.http.delete("/v0/pipelines/p", headers=reader)) == (403, "InsufficientRole")
    assert manager.http.post("/v0/pipelines", json=body).status_code == 201
    # Following changes reads, though it is a POST.
    assert code(manager.http.post("/v0/pipelines/p/egress/v", headers=reader))[0] == 503
    # a pipeline, or a table, of that name is not the stream of changes
    for path in ("egress/start", "egress/ingress/egress", "p/tables/egress/connectors/c/pause"):
        assert code(manager.http.post(f"/v0/pipelines/{path}", headers=reader))[0] == 403
    assert manager.http.delete("/v0/api_keys/viewer").status_code == 200
    assert code(manager.http.get("/v0/pipelines", headers=reader)) == (401, "InvalidApiKey")


def test_keys_are_listed_without_themselves(shared: Manager) -> None:
    made = shared.http.post("/v0/api_keys", json={"name": "one"}).json()
    assert set(made) == {"id", "name", "api_key"}
    assert shared.http.get("/v0/api_keys/one").json() == {"id": made["id"], "name": "one", "role": "write"}
    assert made["api_key"] not in shared.http.get("/v0/api_keys").text
    assert code(shared.http.post("/v0/api_keys", json={"name": "one"})) == (409, "DuplicateName")
    assert code(shared.http.post("/v0/api_keys", json={"name": "x", "role": "admin"}))[0] == 400
    assert shared.http.delete("/v0/api_keys/one").status_code == 200
    assert code(shared.http.delete("/v0/api_keys/one")) == (404, "UnknownApiKey")
    assert code(shared.http.get("/v0/api_keys/one")) == (404, "UnknownApiKey")


def test_web_pages_cannot_use_a_service_without_keys(shared: Manager) -> None:
    page = shared.http.get("/v0/pipelines", headers={"Origin": "https://evil.example"})
    assert code(page) == (403, "ForeignOrigin")
    rebound = shared.http.get("/v0/pipelines", headers={"Host": "evil.example:8080"})
    assert code(rebound) == (403, "ForeignHost")
    own = shared.http.get("/v0/pipelines", headers={"Origin": "http://localhost:3000", "Host": "localhost:1"})
    assert own.status_code == 200
