"""Every route of the API with what a right request to it looks like: the tests that hold for each of them walk this table.

`test_the_table_has_every_route` compares it with the application.
"""

from typing import Any

import msgspec

RUN = "run_01m8q50sqgfr8rr3p2njew2ywc"
REVISION = "rev_01m8q50sqgfr8rr3p2njew2ywc"
EVALUATION = "evl_01m8q50sqgfr8rr3p2njew2ywc"
TRIAL = "trl_01m8q50sqgfr8rr3p2njew2ywc"
UPLOAD = "upl_01m8q50sqgfr8rr3p2njew2ywc"
KEY = "key_01m8q50sqgfr8rr3p2njew2ywc"
NEW_RUN: dict[str, Any] = {"tasks": ["hello"], "agent": {"name": "oracle"}}


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    template: str
    path: str = ""
    """With ids that nobody has; empty: the template has none."""
    role: str | None
    """The least role that is let in; None: anybody at all."""
    body: dict[str, Any] | None = None
    missing: int | None = None
    """What a thing that is not there gets: 404, or 422 where it is named in the body."""

    @property
    def url(self) -> str:
        return self.path or self.template

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


def _get(template: str, path: str = "", *, role: str | None = "viewer") -> Route:
    return Route(method="GET", template=template, path=path, role=role, missing=404 if path else None)


ROUTES: tuple[Route, ...] = (
    _get("/", role=None),
    _get("/healthz", role=None),
    _get("/readyz", role=None),
    _get("/metrics", role=None),
    _get("/openapi.json", role=None),
    _get("/docs", role=None),
    _get("/docs/docs.js", role=None),
    _get("/docs/docs.css", role=None),
    _get("/v1/me"),
    _get("/v1/agents"),
    Route(method="POST", template="/v1/agents", role="member", body={"name": "mine", "agent": {"name": "oracle"}}),
    _get("/v1/agents/{agent}", "/v1/agents/absent"),
    Route(method="POST", template="/v1/runs/check-agent", role="viewer", body={"agent": {"name": "oracle"}}),
    _get("/v1/keys", role="admin"),
    Route(method="POST", template="/v1/keys", role="admin", body={"name": "ci"}),
    Route(method="POST", template="/v1/keys/{key}/revoke", path=f"/v1/keys/{KEY}/revoke", role="admin", missing=404),
    Route(method="POST", template="/v1/uploads", role="member"),
    Route(
        method="PUT",
        template="/v1/uploads/{upload_id}/content",
        path=f"/v1/uploads/{UPLOAD}/content",
        role="member",
        missing=404,
    ),
    _get("/v1/tasks"),
    _get("/v1/tasks/{task}", "/v1/tasks/absent"),
    _get("/v1/tasks/{task}/revisions", "/v1/tasks/absent/revisions"),
    Route(
        method="POST",
        template="/v1/tasks/{task}/revisions",
        path="/v1/tasks/absent/revisions",
        role="member",
        body={"upload": UPLOAD},
        missing=404,
    ),
    _get("/v1/revisions/{revision}", f"/v1/revisions/{REVISION}"),
    _get("/v1/revisions/{revision}/events", f"/v1/revisions/{REVISION}/events"),
    _get("/v1/revisions/{revision}/logs", f"/v1/revisions/{REVISION}/logs"),
    _get("/v1/runs"),
    Route(method="POST", template="/v1/runs", role="member", body=NEW_RUN, missing=422),
    _get("/v1/runs/{run}", f"/v1/runs/{RUN}"),
    Route(method="POST", template="/v1/runs/{run}/cancel", path=f"/v1/runs/{RUN}/cancel", role="member", missing=404),
    Route(method="POST", template="/v1/runs/{run}/retry", path=f"/v1/runs/{RUN}/retry", role="member", missing=404),
    _get("/v1/runs/{run}/evaluations", f"/v1/runs/{RUN}/evaluations"),
    _get("/v1/runs/{run}/trials", f"/v1/runs/{RUN}/trials"),
    _get("/v1/runs/{run}/events", f"/v1/runs/{RUN}/events"),
    _get("/v1/runs/{run}/logs", f"/v1/runs/{RUN}/logs"),
    _get("/v1/runs/{run}/archive", f"/v1/runs/{RUN}/archive"),
    _get("/v1/evaluations/{evaluation}", f"/v1/evaluations/{EVALUATION}"),
    _get("/v1/evaluations/{evaluation}/trials", f"/v1/evaluations/{EVALUATION}/trials"),
    _get("/v1/evaluations/{evaluation}/archive", f"/v1/evaluations/{EVALUATION}/archive"),
    _get("/v1/evaluations/{evaluation}/provenance", f"/v1/evaluations/{EVALUATION}/provenance"),
    _get("/v1/evaluations/{evaluation}/sbom", f"/v1/evaluations/{EVALUATION}/sbom"),
    _get("/v1/evaluations/{evaluation}/manifest", f"/v1/evaluations/{EVALUATION}/manifest"),
    _get("/v1/trials/{trial}", f"/v1/trials/{TRIAL}"),
    _get("/v1/trials/{trial}/executions", f"/v1/trials/{TRIAL}/executions"),
    _get("/v1/trials/{trial}/events", f"/v1/trials/{TRIAL}/events"),
    _get("/v1/trials/{trial}/logs", f"/v1/trials/{TRIAL}/logs"),
    _get("/v1/trials/{trial}/artifacts", f"/v1/trials/{TRIAL}/artifacts"),
    _get("/v1/trials/{trial}/artifacts/{path}", f"/v1/trials/{TRIAL}/artifacts/a/b.txt"),
    Route(
        method="POST",
        template="/v1/trials/{trial}/cancel",
        path=f"/v1/trials/{TRIAL}/cancel",
        role="member",
        missing=404,
    ),
    _get("/v1/events"),
)
PRIVATE = tuple(route for route in ROUTES if route.role is not None)
WITH_BODY = tuple(route for route in ROUTES if route.body is not None)
"""Those that take JSON."""
