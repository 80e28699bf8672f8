"""The document of the API, and a page that shows it to people. Everything comes from here; nothing is loaded elsewhere."""

import functools
import importlib.resources
from typing import Any

import msgspec
from litestar import Request, Response, get

from app.http.access import PUBLIC

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@get("/", opt=PUBLIC, include_in_schema=False)
async def front(request: Request[Any, Any, Any]) -> Response[Any]:
    """Where to go from here; a browser goes to the page."""
    if "text/html" in request.headers.get("accept", ""):
        return Response(b"", status_code=303, headers={"Location": "/docs"})
    document = request.app.state.document()
    return Response(Front(name=document["info"]["title"], version=document["info"]["version"]))


@get("/openapi.json", opt=PUBLIC, include_in_schema=False)
async def openapi_document(request: Request[Any, Any, Any]) -> Response[bytes]:
    """OpenAPI 3.1."""
    body = msgspec.json.encode(request.app.state.document())
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-cache"})


@get("/docs", opt=PUBLIC, include_in_schema=False)
async def docs() -> Response[bytes]:
    """The document for people."""
    return _file("docs.html", "text/html; charset=utf-8")


@get("/docs/docs.js", opt=PUBLIC, include_in_schema=False)
async def docs_script() -> Response[bytes]:
    return _file("docs.js", "text/javascript; charset=utf-8")


@get("/docs/docs.css", opt=PUBLIC, include_in_schema=False)
async def docs_style() -> Response[bytes]:
    return _file("docs.css", "text/css; charset=utf-8")


def _file(name: str, media_type: str) -> Response[bytes]:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return Response(_content(name), media_type=media_type, headers=headers)


class Front(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    api: str = "/v1"
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    health: str = "/healthz"
    ready: str = "/readyz"


@functools.cache
def _content(name: str) -> bytes:
    return importlib.resources.files("app.http").joinpath("pages", name).read_bytes()


HANDLERS = (front, openapi_document, docs, docs_script, docs_style)
