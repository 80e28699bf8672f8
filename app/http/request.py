"""Reading a JSON body strictly: the declared type and nothing else.

Litestar converts bodies leniently ("3" for 3, `true` for 1) and takes any content type. Here the bytes are decoded straight
into the Struct that the handler declares; what does not fit is a problem that points at the field.
"""

import contextlib
import difflib
import functools
import re
import types
import typing
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException

from app.commands.refusals import FieldError
from app.http.problems import ProblemRaised

UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
AT = re.compile(r"(?P<message>.*?) - at `(?:key` in `)?(?P<path>\$.*)`\Z", re.DOTALL)
CHARSET = re.compile(r"charset\s*=\s*\"?(?P<name>[^\s\";]*)")
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
LEVELS = 64
"""Whoever handles a body later (an agent's settings, say) walks through it without a thought of its depth."""
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
STEP = re.compile(r"\.(?P<field>[A-Za-z_]\w*)|\[(?P<index>\d+|\.\.\.)\]")


class StrictRequest(Request[Any, Any, Any]):
    """The request class of the whole application."""

    async def stream(self) -> AsyncGenerator[bytes]:
        """The body as it comes."""
        try:
            async with contextlib.aclosing(super().stream()) as pieces:
                async for piece in pieces:
                    yield piece
        except InternalServerException as error:  # Litestar's word for a disconnect; nobody gets the answer
            raise ProblemRaised(400, "body_incomplete", "the body ended too early; nothing was kept") from error

    async def json(self) -> Any:
        field = self.route_handler.parsed_data_field
        assert field is not None, "only handlers that declare a body read one"
        content_type, _, parameters = self.headers.get("content-type", "").lower().partition(";")
        content_type = content_type.strip()
        if content_type and content_type != "application/json" and not content_type.endswith("+json"):
            raise ProblemRaised(415, "media_type_unsupported", "the body is JSON: Content-Type: application/json")
        if (charset := CHARSET.search(parameters)) is not None and charset["name"] not in ("utf-8", "utf8"):
            raise ProblemRaised(415, "media_type_unsupported", "JSON is in UTF-8: leave the charset out")
        as_it_is(self)
        return decode(field.annotation, await self.body())


def as_it_is(request: Request[Any, Any, Any]) -> None:
    """Raises ProblemRaised (415) for a body that is encoded once more: nothing here decodes it."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        detail = "send the body as it is, without Content-Encoding"
        raise ProblemRaised(415, "encoding_unsupported", detail, headers={"Accept-Encoding": "identity"})


def decode(wanted: Any, body: bytes) -> Any:
    """The body as `wanted`. Raises ProblemRaised: 400 for what is no JSON, 422 for JSON of another shape."""
    if not body:
        raise ProblemRaised(400, "body_missing", "this route takes a JSON body")
    try:
        taken = _decoder(wanted).decode(body)
    except msgspec.ValidationError as error:
        problem = explain(wanted, str(error))
        raise ProblemRaised(422, "body_invalid", problem.detail, errors=(problem,)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemRaised(400, "body_malformed", "the body is not JSON") from error
    wrong = None
    if NUL.search(body):  # no text of the database has it
        wrong = "a text has a NUL character"
    elif body.count(b"[") + body.count(b"{") > LEVELS and depth(body) > LEVELS:
        wrong = f"it is nested more than {LEVELS} levels deep"
    if wrong is not None:
        problem = FieldError("", "wrong_value", f"the body: {wrong}")
        raise ProblemRaised(422, "body_invalid", problem.detail, errors=(problem,))
    return taken


def depth(body: bytes) -> int:
    """How deep lists and objects are nested in well-formed JSON."""
    deepest = here = 0
    for token in TOKEN.finditer(body):
        here += STEPS.get(token[0], 0)
        deepest = max(deepest, here)
    return deepest


def explain(wanted: Any, message: str) -> FieldError:
    """What msgspec says, with the place as a JSON Pointer, and for a misspelt field the nearest one that there is.

    msgspec has no structured errors: its messages are the interface, and tests/http/test_request.py holds them.
    """
    path = "$"
    if (at := AT.match(message)) is not None:
        message, path = at["message"], at["path"]
    pointer, inner = _walk(wanted, path)
    if (unknown := UNKNOWN.match(message)) is not None:
        name = unknown["name"]
        fields = _fields(inner)
        near = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(fields)}"
        return FieldError(f"{pointer}/{_escape(name[:64])}", "unknown_field", f"there is no field of this name; {hint}")
    if (missing := MISSING.match(message)) is not None:
        name = missing["name"]
        return FieldError(f"{pointer}/{_escape(name)}", "missing_field", f"`{name}` is missing")
    where = f"`{pointer}`: " if pointer else "the body: "
    return FieldError(pointer, "wrong_value", where + message[:1].lower() + message[1:])


@functools.cache
def _decoder(wanted: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(wanted)


def _walk(wanted: Any, path: str) -> tuple[str, Any]:
    """(JSON Pointer, the type there). A key that msgspec writes as `[...]` is left out: it may be anything."""
    pointer, here = "", wanted
    for step in STEP.finditer(path):
        here = _struct_or_collection(here)
        if (name := step["field"]) is not None:
            pointer += f"/{_escape(name)}"
            here = _type_of(here, name)
        else:
            pointer += "" if step["index"] == "..." else f"/{step['index']}"
            arguments = typing.get_args(here)
            here = arguments[-1] if arguments and arguments[-1] is not Ellipsis else arguments[0] if arguments else None
    return pointer, _struct_or_collection(here)


def _struct_or_collection(annotation: Any) -> Any:
    """Without Annotated, without None, and of a union the Struct."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, typing.TypeAliasType):
        return _struct_or_collection(annotation.__value__)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = [_struct_or_collection(option) for option in typing.get_args(annotation) if option is not type(None)]
        structs = [option for option in options if _fields(option)]
        return structs[0] if structs else options[0]
    return annotation


def _fields(annotation: Any) -> tuple[str, ...]:
    is_struct = isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
    return annotation.__struct_encode_fields__ if is_struct else ()


def _type_of(struct: Any, name: str) -> Any:
    if not _fields(struct):
        return None
    return next((field.type for field in msgspec.structs.fields(struct) if field.encode_name == name), None)


def _escape(name: str) -> str:
    """RFC 6901, section 3."""
    return name.replace("~", "~0").replace("/", "~1")
