"""The OpenAPI 3.1 document.

Litestar derives the paths and parameters from the handlers. The schemas come from msgspec itself, which decodes the bodies
and encodes the answers, so they say exactly what is taken and given: closed Structs, bounds, tuples. Every problem is
`application/problem+json`, and each operation names the permission that it takes.
"""

import functools
import typing
from typing import Any

import msgspec
from litestar import Litestar, Response
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from app.bus.envelope import CloudEvent
from app.domain.registry import catalogue
from app.http.problems import MEDIA_TYPE, Problem

SCHEME = "apiKey"
JSON = "application/json"
TEMPLATE = "#/components/schemas/{name}"
PROBLEM = "#/components/responses/Problem"
IDEMPOTENCY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "With the same key and the same request, the first answer is given again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
AFTER: dict[str, Any] = {
    "name": "Seatrial-After",
    "in": "header",
    "required": False,
    "description": "The Seatrial-Position of a write that this read must see.",
    "schema": {"type": "string"},
}
WAIT: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait=N`: answer when it has ended, or after N seconds (at most 60).",
    "schema": {"type": "string"},
}
THERE_ALREADY = {
    "createRevision": "The task has a revision of this content already.",
    "createAgent": "The team has this agent under this name already.",
}
"""Operations whose 200 says that there was nothing to be made."""
BODY = {"description": "The archive itself: tar, tar.gz, tar.zst or zip.", "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}  # fmt: skip


@functools.cache
def document(handlers: tuple[Any, ...], names: tuple[str, ...], version: str) -> dict[str, Any]:
    """The document of an application of these handlers, once made. `names` are what the application provides.

    It is derived from an application of its own, because one that derives it also serves it, on routes of its own.
    """
    app = Litestar(
        route_handlers=handlers,
        dependencies={name: Provide(lambda: None, sync_to_thread=False) for name in names},
        openapi_config=OpenAPIConfig(
            title="Seatrial",
            version=version,
            description="Container-isolated agent evaluations: push a task, start a run, follow it, fetch what proves it.",
            use_handler_docstrings=True,
            render_plugins=[JsonRenderPlugin()],
        ),
    )
    derived = app.openapi_schema.to_schema()
    operations = [
        (derived["paths"][route.path_format][method.lower()], handler, method)
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        for method in handler.http_methods
        if method.lower() in derived["paths"].get(route.path_format, {})
    ]
    kinds = {kind for _, handler, _ in operations for kind in (_taken(handler), _given(handler)) if kind is not None}
    listed = [*sorted(kinds, key=str), Problem, CloudEvent]
    schemas, components = msgspec.json.schema_components(listed, ref_template=TEMPLATE)
    by_kind = dict(zip(listed, schemas, strict=True))
    components["Events"]["properties"]["items"]["items"] = by_kind[CloudEvent]
    for operation, handler, method in operations:
        _correct(operation, handler, method, by_kind)
    derived["components"] = {
        "securitySchemes": {SCHEME: {"type": "http", "scheme": "bearer", "description": "An API key."}},
        "responses": {
            "Problem": {
                "description": "RFC 9457. `code` is stable; `retryable`: the same request may succeed later.",
                "content": {MEDIA_TYPE: {"schema": by_kind[Problem]}},
            }
        },
        "schemas": components,
    }
    return derived


def _correct(operation: dict[str, Any], handler: Any, method: str, schemas: dict[Any, dict[str, Any]]) -> None:
    opt = handler.opt
    success = next(status for status in operation["responses"] if status.startswith("2"))
    given, taken = _given(handler), _taken(handler)
    content = {JSON: {"schema": schemas[given]}} if given is not None else {}
    content |= {kind: {"schema": {"type": "string"}} for kind in opt.get("media_types", ())}
    content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in opt.get("files", ())}
    if handler.operation_id == "metrics":
        content = {"text/plain": {"schema": {"type": "string"}}}
    responses = {success: {"description": operation["responses"][success]["description"], "content": content}}
    if opt.get("files"):
        responses["206"] = {"description": "The range that was asked for.", "content": content}
    if (there := THERE_ALREADY.get(handler.operation_id)) is not None:
        responses["200"] = {"description": there, "content": content}
    if handler.operation_id == "ready":
        responses["503"] = {"description": "Not ready, and what is missing.", "content": content}
    operation["responses"] = responses | {"default": {"$ref": PROBLEM}}
    if taken is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[taken]}}}
    elif method == "PUT":
        operation["requestBody"] = BODY
    for parameter in operation.get("parameters", ()):
        if parameter["name"] == "type" and parameter["in"] == "query":
            types = sorted(name for name, _ in catalogue())
            parameter["schema"] = {"type": "array", "items": {"type": "string", "enum": types}}
    headers = [AFTER] * bool(opt.get("views"))
    headers += [IDEMPOTENCY] * (method == "POST" and handler.operation_id != "openUpload")
    headers += [WAIT] * bool(opt.get("waits"))
    if headers:
        operation["parameters"] = [*operation.get("parameters", ()), *headers]
    operation["security"] = [] if opt.get("public") else [{SCHEME: []}]
    if "permission" in opt:
        operation["x-permission"] = opt["permission"].value


def _taken(handler: Any) -> Any:
    """The Struct of the body; None where there is none."""
    field = handler.parsed_data_field
    return None if field is None else field.annotation


def _given(handler: Any) -> Any:
    """The Struct of the answer; None where it is bytes."""
    kind = handler.opt.get("returns") or handler.parsed_return_field.annotation
    if typing.get_origin(kind) is not None and issubclass(typing.get_origin(kind), Response):
        kind = typing.get_args(kind)[0]
    return None if kind is Any or kind is bytes else kind
