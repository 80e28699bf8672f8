"""The document of the API says what the API does, and its page needs nothing from elsewhere."""

import re
from typing import Any

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from tests.http.routes import ROUTES, WITH_BODY
from tests.http.story import Story
from tests.http.world import Server, Team, client, mark, ready_task, start_run


@pytest.fixture(scope="module")
async def api(server: Server) -> dict[str, Any]:
    async with client(server) as anybody:
        return (await anybody.get("/openapi.json")).json()


def operations(api: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(method.upper(), path): one for path, item in api["paths"].items() for method, one in item.items()}


def test_it_is_openapi_3_1_with_every_route(api: dict[str, Any]) -> None:
    assert api["openapi"].startswith("3.1")
    documented = {
        (route.method, route.template)
        for route in ROUTES
        if route.template not in ("/", "/docs", "/docs/docs.js", "/docs/docs.css", "/openapi.json")
    }
    assert set(operations(api)) == documented
    names = [one["operationId"] for one in operations(api).values()]
    assert len(names) == len(set(names))
    assert all(one.get("description") for one in operations(api).values())


def test_every_reference_leads_somewhere_and_every_schema_is_one(api: dict[str, Any]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [value["$ref"]] if "$ref" in value else [one for each in value.values() for one in references(each)]
        return [one for each in value for one in references(each)] if isinstance(value, list) else []

    for reference in references(api):
        there: Any = api
        for step in reference.removeprefix("#/").split("/"):
            there = there[step]
    for schema in api["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_it_tells_of_problems_permissions_and_closed_bodies(api: dict[str, Any]) -> None:
    by_route = operations(api)
    for route in ROUTES:
        operation = by_route.get((route.method, route.template))
        if operation is None:
            continue
        assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}
        assert ("x-permission" in operation) == bool(operation["security"]) == (route.role is not None)
        told = [status for status in operation["responses"] if status[0] in "45"]
        assert told == (["503"] if route.template == "/readyz" else []), "the others are problems"
    assert "application/problem+json" in api["components"]["responses"]["Problem"]["content"]
    for route in WITH_BODY:
        body = by_route[route.method, route.template]["requestBody"]["content"]["application/json"]["schema"]
        schema = api["components"]["schemas"][body["$ref"].rpartition("/")[2]]
        assert schema["additionalProperties"] is False
        validator(api, body).validate(route.body)
        with pytest.raises(jsonschema.ValidationError):
            validator(api, body).validate({**(route.body or {}), "unknown": 1})


async def test_answers_are_what_the_document_says(api: dict[str, Any], team: Team) -> None:
    revision_id = await ready_task(team)
    run_id = (await start_run(team, name="n", labels={"a": "b"})).json()["id"]
    story = Story(team.house, team.id)
    [trial_id] = await story.expand(run_id)
    execution = await story.start(run_id, trial_id)
    await story.leave(trial_id, execution, 1, {"a.txt": b"a"}, ["line"])
    position = await story.score(run_id, trial_id, execution)
    trial = (await team.api.get(f"/v1/trials/{trial_id}", headers=mark(team, position))).json()
    values = {
        "run": run_id,
        "revision": revision_id,
        "task": "hello",
        "agent": (await team.api.post("/v1/agents", json={"name": "a", "agent": {"name": "nop"}})).json()["id"],
        "trial": trial_id,
        "evaluation": trial["evaluation_id"],
    }
    checked = 0
    for (method, path), operation in operations(api).items():
        content = operation["responses"].get("200", {}).get("content", {}).get("application/json")
        if method != "GET" or content is None or path.endswith(("/provenance", "/manifest", "/sbom", "/archive")):
            continue
        response = await team.clients["admin"].get(path.format(**values))
        assert response.status_code == 200, (path, response.text)
        validator(api, content["schema"]).validate(response.json())
        checked += 1
    assert checked > 20


async def test_the_page_loads_nothing_from_elsewhere(server: Server) -> None:
    async with client(server) as anybody:
        page = await anybody.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for url in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert url.startswith(("/", "data:,")), url
            if url.startswith("/"):
                there = await anybody.get(url)
                assert there.status_code == 200, url
                assert "://" not in there.text or url == "/openapi.json", url


def validator(api: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": api["components"]})
