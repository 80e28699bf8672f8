"""The OpenAPI 3.1 document: what Litestar derives from the handlers, corrected where it does not tell the truth.

Closed Structs get `additionalProperties: false`, every problem is `application/problem+json`, the bearer key is declared,
and each operation names the permission that it takes.
"""

import functools
import typing
from typing import Any

from litestar import Litestar
from litestar._openapi.schema_generation.plugins.struct import (
    StructSchemaPlugin,  # no public door to it; ~=2.25 is pinned
)
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Schema
from litestar.typing import FieldDefinition

from app.http.problems import MEDIA_TYPE

SCHEME = "apiKey"
PROBLEM = "#/components/responses/Problem"
REQUEST_HEADERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {
        "description": "With the same key and the same request, the first answer is given again.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    },
    "Seatrial-After": {
        "description": "The Seatrial-Position of a write that this read must see.",
        "schema": {"type": "string"},
    },
}


class ClosedStructs(StructSchemaPlugin):
    """Litestar leaves out that a Struct takes no other fields."""

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        schema = super().to_openapi_schema(field_definition, schema_creator)
        struct = typing.get_origin(field_definition.annotation) or field_definition.annotation
        if struct.__struct_config__.forbid_unknown_fields:
            schema.additional_properties = False
        return schema


def config(version: str) -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Seatrial",
        version=version,
        description="Container-isolated agent evaluations: push a task, start a run, follow it, fetch what proves its score.",
        use_handler_docstrings=True,
        render_plugins=[JsonRenderPlugin(path="/litestar.json")],
        path="/openapi",
    )


@functools.cache
def document(app: Litestar) -> dict[str, Any]:
    """The document of an application, once made."""
    schema = app.openapi_schema.to_schema()
    components = schema.setdefault("components", {})
    components["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer", "description": "An API key."}}
    components.setdefault("schemas", {})["Problem"] = _problem()
    components["responses"] = {
        "Problem": {
            "description": "RFC 9457. `code` is stable; `retryable` says whether the same request may succeed later.",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    }
    options = {
        (path, method): handler.opt
        for route in app.routes
        for path in [route.path_format]
        for handler in getattr(route, "route_handlers", ())
        for method in getattr(handler, "http_methods", ())
    }
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            _correct(operation, options.get((path, method.upper()), {}), method)
    return schema


def _correct(operation: dict[str, Any], opt: dict[str, Any], method: str) -> None:
    responses = operation["responses"]
    for status in [status for status in responses if status[:1] in "45"]:
        del responses[status]
    responses["default"] = {"$ref": PROBLEM}
    headers = [name for name, wanted in (("Seatrial-After", opt.get("views")), ("Idempotency-Key", method == "post"))
               if wanted]  # fmt: skip
    if opt.get("public") or operation.get("operationId") == "openUpload":
        headers = []
    operation.setdefault("parameters", []).extend(
        {"name": name, "in": "header", "required": False, **REQUEST_HEADERS[name]} for name in headers
    )
    if not operation["parameters"]:
        del operation["parameters"]
    if opt.get("public"):
        operation["security"] = []
        return
    operation["security"] = [{SCHEME: []}]
    if "permission" in opt:
        operation["x-permission"] = opt["permission"].value
    for extra in opt.get("media_types", ()):
        responses["200"].setdefault("content", {})[extra] = {"schema": {"type": "string"}}


def _problem() -> dict[str, Any]:
    text = {"type": "string"}
    error = {
        "type": "object",
        "properties": {"pointer": text, "code": text, "detail": text},
        "required": ["pointer", "code", "detail"],
    }
    return {
        "type": "object",
        "properties": {
            "type": text,
            "title": text,
            "status": {"type": "integer"},
            "detail": text,
            "code": text,
            "request_id": text,
            "retryable": {"type": "boolean"},
            "errors": {"type": "array", "items": error},
        },
        "required": ["type", "title", "status", "detail", "code", "request_id", "retryable", "errors"],
    }
