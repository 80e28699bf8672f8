"""What every answer has, and what the log and the counters say of it."""

import re
import subprocess
import sys

from structlog.testing import capture_logs

from tests.http.world import Server, Team, client, pack, problem, push, upload

SECRET_NAME = "customer-x-secret-project"


async def test_every_answer_has_an_id_and_is_not_to_be_guessed_at_or_cached(team: Team) -> None:
    for url in ("/v1/me", "/v1/nothing", "/healthz"):
        response = await team.api.get(url)
        assert re.fullmatch(r"[0-9a-f]{32}", response.headers["x-request-id"])
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "server" not in response.headers


async def test_the_log_has_one_line_a_request_and_nothing_that_was_sent(team: Team) -> None:
    token = team.keys["member"]
    with capture_logs() as lines:
        await push(team.api, SECRET_NAME, pack(content=SECRET_NAME))
        await team.api.get(f"/v1/tasks/{SECRET_NAME}?page_token={SECRET_NAME}")
        body = {"tasks": [SECRET_NAME], "agent": {"name": SECRET_NAME}}
        await team.api.post("/v1/runs", json=body, headers={"Idempotency-Key": SECRET_NAME})
    said = [line for line in lines if line["event"] == "request"]
    assert [(line["method"], line["route"], line["status"]) for line in said] == [
        ("POST", "/v1/uploads", 201),
        ("PUT", "/v1/uploads/{upload_id}/content", 200),
        ("POST", "/v1/tasks/{task}/revisions", 202),
        ("GET", "/v1/tasks/{task}", 400),
        ("POST", "/v1/runs", 422),
    ]
    assert said[-1]["problem"] == "unknown_agent"
    assert {line["team"] for line in said} == {team.id}
    assert all(line["ms"] > 0 for line in said)
    assert SECRET_NAME not in str(lines)
    assert token not in str(lines)


async def test_an_error_that_nobody_foresaw_tells_its_id_and_nothing_else(team: Team, monkeypatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET_NAME)

    monkeypatch.setattr("app.http.routes.revisions.tasks.page", broken)
    with capture_logs() as lines:
        response = await team.api.get("/v1/tasks")
    found = problem(response, 500, "internal")
    assert not found["retryable"]
    [unexpected] = [line for line in lines if line["event"] == "unexpected"]
    assert unexpected["request_id"] == found["request_id"]
    assert "broken" in unexpected["where"][-1]
    assert SECRET_NAME not in str(lines) + response.text


async def test_requests_are_counted_by_template_and_problems_by_code(server: Server, team: Team) -> None:
    await team.api.get("/v1/tasks/absent-1")
    await team.api.get("/v1/tasks/absent-2")
    async with client(server) as anybody:
        text = (await anybody.get("/metrics")).text
    assert 'route="/v1/tasks/{task}",status="404"' in text
    assert "absent-1" not in text
    assert 'seatrial_http_problems_total{code="not_found"}' in text
    assert 'seatrial_http_request_seconds_count{method="GET",route="/v1/tasks/{task}"}' in text
    assert 'seatrial_dependency_up{dependency="nats"} 1.0' in text


async def test_a_trace_context_goes_into_the_events(team: Team) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = await upload(team.api, pack())
    made = await team.api.post("/v1/tasks/traced/revisions", json={"upload": sent}, headers={"traceparent": trace})
    page = (
        await team.api.get(
            made.headers["location"] + "/events", headers={"Seatrial-After": made.headers["seatrial-position"]}
        )
    ).json()
    assert page["items"][0]["traceparent"] == trace


def test_the_api_loads_no_library_that_only_others_need() -> None:
    heavy = ("kubernetes_asyncio", "aioboto3", "botocore", "cyclonedx", "aiodocker", "dockerfile")
    code = f"import sys, app.http.serve; print([name for name in {heavy!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
