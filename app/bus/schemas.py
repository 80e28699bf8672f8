"""Generates what a downstream consumer builds on: a JSON Schema for each event type and version, one for the envelope, and
an AsyncAPI 3 document that names every channel. Checked in under deploy/schemas; a test holds them equal to the catalogue.

    python -m app.bus.schemas deploy/schemas
"""

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from app.bus import subjects
from app.bus.envelope import CloudEvent, schema_uri
from app.bus.logs import LogChunk
from app.domain import events as catalogue_module
from app.domain.registry import Event, catalogue

DRAFT = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI = "3.0.0"

type Json = dict[str, Any]
"""A JSON document that leaves this module as text only."""


def files() -> dict[str, str]:
    """Path to text of every generated file."""
    assert catalogue_module  # its import has filled the registry
    made = {"envelope.json": _text(envelope_schema()), "log-chunk.json": _text(log_chunk_schema())}
    for (name, version), struct in sorted(catalogue().items()):
        made[f"events/{name}.v{version}.json"] = _text(event_schema(name, version, struct))
    made["asyncapi.json"] = _text(asyncapi())
    return made


def write(folder: Path) -> list[str]:
    """Make `folder` hold exactly the generated files; the paths that changed."""
    wanted = files()
    changed: list[str] = []
    for path, text in wanted.items():
        target = folder / path
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            changed.append(path)
    for target in folder.rglob("*.json"):
        path = target.relative_to(folder).as_posix()
        if path not in wanted:
            target.unlink()
            changed.append(path)
    return sorted(changed)


def event_schema(name: str, version: int, struct: type[Event]) -> Json:
    """The schema of `data`. Fields that it does not name may come with later releases: a consumer ignores them."""
    return {"$schema": DRAFT, "$id": schema_uri(name, version), **_inlined(struct), "title": f"{name} v{version}"}


def envelope_schema() -> Json:
    """CloudEvents 1.0 as Seatrial uses it, whatever `data` is."""
    schema = _inlined(CloudEvent)
    schema["properties"] |= {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "format": "uuid"},
        "time": {"type": "string", "format": "date-time"},
        "type": {"type": "string", "pattern": r"^seatrial\.[a-z_]+\.[a-z_]+\.v[1-9][0-9]*$"},
        "datacontenttype": {"const": "application/json"},
        "dataschema": {"type": "string", "format": "uri"},
        "data": {"type": "object"},
        "traceparent": {"type": "string"},
        "causationid": {"type": "string"},
        "correlationid": {"type": "string"},
    }
    return {"$schema": DRAFT, "$id": "urn:seatrial:schema:envelope", **schema, "title": "Event envelope"}


def log_chunk_schema() -> Json:
    return {"$schema": DRAFT, "$id": "urn:seatrial:schema:log-chunk", **_inlined(LogChunk), "title": "Log chunk"}


def asyncapi() -> Json:
    """The document: one channel for each event type, one for log chunks."""
    known = sorted(catalogue().items())
    channels: Json = {}
    operations: Json = {}
    messages: Json = {}
    for (name, version), struct in known:
        key = f"{name}.v{version}"
        messages[key] = {
            "name": f"seatrial.{key}",
            "title": name,
            "summary": _summary(struct),
            "contentType": "application/cloudevents+json",
            "payload": {
                "schemaFormat": "application/schema+json;version=draft-2020-12",
                "schema": {
                    "allOf": [
                        {"$ref": "envelope.json"},
                        {
                            "properties": {
                                "type": {"const": f"seatrial.{key}"},
                                "dataschema": {"const": schema_uri(name, version)},
                                "data": {"$ref": f"events/{key}.json"},
                            }
                        },
                    ]
                },
            },
        }
    for name in sorted({name for (name, _), _ in known}):
        versions = [f"{other}.v{version}" for (other, version), _ in known if other == name]
        channels[name] = {
            "address": f"seatrial.events.{{team}}.{{category}}.{{id}}.{name}",
            "description": f"Every {name} event, in the order of the log. Stream EVENTS, kept for seven days.",
            "parameters": {
                "team": {"description": "The team's id."},
                "category": {"description": "The kind of stream: run, trial, …"},
                "id": {"description": "The stream's id: of the run, trial, …"},
            },
            "messages": {key: {"$ref": f"#/components/messages/{key}"} for key in versions},
        }
        operations[f"publish.{name}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "messages": [{"$ref": f"#/channels/{name}/messages/{key}"} for key in versions],
        }
    messages["log-chunk"] = {
        "name": "log-chunk",
        "title": "Log chunk",
        "contentType": "application/json",
        "payload": {"$ref": "log-chunk.json"},
    }
    channels["logs"] = {
        "address": "seatrial.logs.{team}.{kind}.{id}",
        "description": "Output of a trial or a build while it happens. Stream LOGS, kept for a day.",
        "parameters": {
            "team": {"description": "The team's id."},
            "kind": {"description": "trial or build."},
            "id": {"description": "The id of the trial or the revision."},
        },
        "messages": {"log-chunk": {"$ref": "#/components/messages/log-chunk"}},
    }
    operations["publish.logs"] = {
        "action": "send",
        "channel": {"$ref": "#/channels/logs"},
        "messages": [{"$ref": "#/channels/logs/messages/log-chunk"}],
    }
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Seatrial events",
            "version": "1",
            "description": (
                "Events are CloudEvents 1.0 in JSON. Delivery is in the order of the log; a consumer resumes with its own "
                f"JetStream consumer on `{subjects.EVENTS}`, or by the last `cursor` over HTTP."
            ),
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _inlined(struct: type[msgspec.Struct]) -> Json:
    """The schema of a Struct whole in itself, with what it refers to under $defs."""
    (schema,), components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    own = components.pop(schema["$ref"].rsplit("/", 1)[-1])
    if text := _public(struct):
        own["description"] = text
    else:
        own.pop("description", None)
    return {**own, "$defs": components} if components else own


def _summary(struct: type[Event]) -> str:
    """The first sentence of the event's docstring, if it has one of its own."""
    found = re.match(r"[^.]+\.", _public(struct))
    return found.group() if found else ""


def _public(struct: type[msgspec.Struct]) -> str:
    """A Struct's own docstring in one line, without what it says of the private part, which is never published."""
    if not struct.__doc__ or struct.__doc__ == Event.__doc__:
        return ""
    return " ".join(inspect.cleandoc(struct.__doc__).split("private:")[0].split())


def _text(document: Json) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{path}\n" for path in write(Path(sys.argv[1]))))
