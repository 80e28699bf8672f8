"""What holds for each route: who is let in, what a missing thing gets, what a wrong body and a wrong parameter get."""

import datetime
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app import ids
from app.access import Role, rows
from app.access.keys import mint
from tests.http.routes import PRIVATE, ROUTES, WITH_BODY, Route
from tests.http.world import Server, Team, make_team, problem, things_of
from tests.http.world import client as unknown_client

RANKS = ("viewer", "member", "admin")
MISSING = tuple(route for route in PRIVATE if route.missing)


@pytest.fixture(scope="module")
async def theirs(server: Server) -> AsyncIterator[dict[str, str]]:
    """Things that another team has, by the names that routes give them."""
    team = await make_team(server)
    yield await things_of(team)
    await team.close()


async def send(client: httpx.AsyncClient, route: Route, url: str = "", **more: Any) -> httpx.Response:
    if route.body is not None:
        more.setdefault("json", route.body)
    return await client.request(route.method, url or route.url, **more)


def test_the_table_has_every_route(server: Server) -> None:
    there = {
        (method, route.path_format)
        for route in server.door.litestar.routes
        for handler in getattr(route, "route_handlers", ())
        for method in handler.http_methods
        if method not in ("OPTIONS", "HEAD")
    }
    assert there == {(route.method, route.template) for route in ROUTES}


def test_every_route_names_its_permission_or_is_public(server: Server) -> None:
    handlers = [handler for route in server.door.litestar.routes for handler in getattr(route, "route_handlers", ())]
    assert len(handlers) > 40
    for handler in handlers:
        if "OPTIONS" in handler.http_methods:
            continue
        assert ("permission" in handler.opt) != bool(handler.opt.get("public")), handler
        if handler.opt.get("public"):
            assert not any(path.startswith("/v1") for path in handler.paths)


def test_access_control_has_no_switch(server: Server) -> None:
    names = type(server.house.settings).__struct_fields__
    assert not [name for name in names if "auth" in name or "access" in name or "insecure" in name]


@pytest.mark.parametrize("route", PRIVATE, ids=str)
async def test_without_a_key_nobody_is_let_in(server: Server, route: Route) -> None:
    async with unknown_client(server) as client:
        response = await send(client, route)
        problem(response, 401, "credentials_missing")
        assert response.headers["www-authenticate"].startswith("Bearer")
        problem(
            await send(client, route, headers={"Authorization": "Bearer sea_nonsense"}), 401, "credentials_malformed"
        )


@pytest.mark.parametrize("route", [route for route in PRIVATE if route.role != "viewer"], ids=str)
async def test_a_lesser_role_is_told_what_it_takes(team: Team, route: Route) -> None:
    assert route.role is not None
    for role in RANKS[: RANKS.index(route.role)]:
        found = problem(await send(team.clients[role], route), 403, "permission_missing")
        assert route.role in found["detail"]


@pytest.mark.parametrize("route", PRIVATE, ids=str)
async def test_the_least_role_is_let_in(team: Team, route: Route) -> None:
    assert route.role is not None
    response = await send(team.clients[route.role], route)
    assert response.status_code not in (401, 403), response.text
    assert response.status_code < 500, response.text


async def test_an_unknown_expired_or_revoked_key_is_refused(team: Team) -> None:
    async def ask(token: str) -> httpx.Response:
        return await team.api.get("/v1/me", headers={"Authorization": f"Bearer {token}"})

    problem(await ask(mint(ids.new("key"), bytes(32)).token), 401, "key_unknown")
    now = datetime.datetime.now(datetime.UTC)
    expired = mint(ids.new("key"), bytes(range(32)))
    await rows.insert_key(
        team.house.pool, expired, team=team.id, name="old", role=Role.ADMIN, expires_at=now - datetime.timedelta(1)
    )
    problem(await ask(expired.token), 401, "key_expired")
    revoked = mint(ids.new("key"), bytes(range(1, 33)))
    await rows.insert_key(team.house.pool, revoked, team=team.id, name="gone", role=Role.ADMIN)
    assert (await ask(revoked.token)).status_code == 200
    await rows.revoke_key(team.house.pool, team=team.id, key_id=revoked.key_id, now=now)
    problem(await ask(revoked.token), 401, "key_revoked")


@pytest.mark.parametrize("route", MISSING, ids=str)
async def test_a_missing_thing_is_said_to_be_missing(team: Team, route: Route) -> None:
    assert route.missing is not None
    response = await send(team.clients["admin"], route)
    problem(response, route.missing, "not_found" if route.missing == 404 else "task_not_found")


@pytest.mark.parametrize("reference", ["0", "-1", "..%2f..", "run_", "%00", "run_01m8q50s'or'1", "9" * 30, "é"])
async def test_no_reference_is_too_strange_to_be_missing(team: Team, reference: str) -> None:
    for url in (f"/v1/{kind}/{reference}" for kind in ("runs", "tasks", "trials", "agents")):
        problem(await team.api.get(url), 404, "not_found")


@pytest.mark.parametrize("route", [route for route in PRIVATE if "{" in route.template], ids=str)
async def test_another_teams_things_do_not_exist(team: Team, theirs: dict[str, str], route: Route) -> None:
    """The same request with ids that another team has."""
    more = {"json": {"upload": theirs["upload_id"]}} if route.body is not None else {}
    problem(await send(team.clients["admin"], route, route.template.format(**theirs), **more), 404, "not_found")


@pytest.mark.parametrize("route", WITH_BODY, ids=str)
@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "body_missing"),
        (b"{", 400, "body_malformed"),
        (b"\xff\xfe", 400, "body_malformed"),
        (b"[]", 422, "body_invalid"),
        (b"null", 422, "body_invalid"),
        (b"{}", 422, "body_invalid"),
    ],
    ids=["empty", "cut off", "not utf-8", "a list", "null", "fields missing"],
)
async def test_a_wrong_body_is_a_problem(team: Team, route: Route, content: bytes, status: int, code: str) -> None:
    headers = {"Content-Type": "application/json"}
    response = await team.clients["admin"].request(route.method, route.url, content=content, headers=headers)
    problem(response, status, code)


async def test_a_body_deeper_than_anybody_needs_is_refused(team: Team) -> None:
    deep = b'{"tasks":["a"],"agent":{"name":"oracle","settings":{"a":' + b"[" * 100_000
    problem(await team.api.post("/v1/runs", content=deep), 400, "body_malformed")


@pytest.mark.parametrize("route", WITH_BODY, ids=str)
async def test_an_unknown_field_is_told_with_the_nearest_one(team: Team, route: Route) -> None:
    assert route.body is not None
    name = next(iter(route.body))
    misspelt = f"{name}x"
    secret = "do-not-repeat-me"
    response = await team.clients["admin"].request(route.method, route.url, json=route.body | {misspelt: secret})
    [error] = problem(response, 422, "body_invalid")["errors"]
    assert (error["pointer"], error["code"]) == (f"/{misspelt}", "unknown_field")
    assert f"did you mean `{name}`" in error["detail"]
    assert secret not in response.text


@pytest.mark.parametrize("route", WITH_BODY, ids=str)
async def test_a_body_that_is_not_json_or_too_large_is_refused(team: Team, route: Route) -> None:
    client = team.clients["admin"]
    text = await client.request(route.method, route.url, content=b"{}", headers={"Content-Type": "text/plain"})
    problem(text, 415, "media_type_unsupported")
    large = await client.request(
        route.method, route.url, content=b'{"a":"' + b"x" * (5 * 1024**2) + b'"}',
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    problem(large, 413, "body_too_large")


@pytest.mark.parametrize("route", PRIVATE, ids=str)
async def test_an_unknown_query_parameter_is_refused(team: Team, route: Route) -> None:
    found = problem(await send(team.clients["admin"], route, params={"page_sise": "3"}), 400, "unknown_parameter")
    assert "page_sise" not in str(found)


@pytest.mark.parametrize("route", [route for route in PRIVATE if route.method == "GET"], ids=str)
async def test_a_wrong_parameter_names_itself(server: Server, team: Team, route: Route) -> None:
    operation = (await team.api.get("/openapi.json")).json()["paths"][route.template]["get"]
    names = {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
    for name, wrong in (("page_size", "many"), ("page_size", "0"), ("created_after", "yesterday"), ("execution", "0")):
        if name in names:
            found = problem(await send(team.clients["admin"], route, params={name: wrong}), 400, "request_invalid")
            assert found["errors"][0]["pointer"] == f"query/{name}"
            assert "yesterday" not in str(found)
    if "page_token" in names and route.missing is None:
        problem(await send(team.clients["admin"], route, params={"page_token": "nonsense"}), 400, "page_token_invalid")


@pytest.mark.parametrize("route", [route for route in PRIVATE if route.method == "POST"], ids=str)
async def test_an_idempotency_key_that_is_none_is_refused(team: Team, route: Route) -> None:
    for wrong in ("", "x" * 256, "a\tb"):
        response = await send(team.clients["admin"], route, headers={"Idempotency-Key": wrong})
        problem(response, 400, "idempotency_key_invalid")


async def test_a_wrong_method_and_a_wrong_path_are_problems_too(team: Team) -> None:
    response = await team.api.delete("/v1/runs")
    problem(response, 405, "method_not_allowed")
    assert "GET" in response.headers["allow"]
    problem(await team.api.get("/v1/nothing"), 404, "not_found")
    problem(await team.api.get("/etc/passwd"), 404, "not_found")
