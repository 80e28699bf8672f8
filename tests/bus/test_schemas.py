"""What is checked in is what the catalogue says, and it fits real messages."""

import datetime
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app import ids
from app.bus.envelope import encode
from app.bus.logs import LogChunk
from app.bus.logs import encode as encode_chunk
from app.bus.schemas import files, write
from app.domain.events import Result, RunCompleted, Tally, TrialScored, Validity
from app.domain.failures import failure
from app.domain.registry import Event, Meta, catalogue, encode_meta
from app.domain.registry import encode as encode_event
from app.eventlog.model import Recorded

FOLDER = Path(__file__).parents[2] / "deploy" / "schemas"


def test_the_files_are_those_of_the_catalogue() -> None:
    found = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.json")}
    assert found == files(), "run `python -m app.bus.schemas deploy/schemas`"


def test_writing_changes_what_differs_and_removes_what_is_gone(tmp_path: Path) -> None:
    assert write(tmp_path) == sorted(files())
    assert write(tmp_path) == []
    (tmp_path / "envelope.json").write_text("{}")
    (tmp_path / "events" / "old.event.v1.json").write_text("{}")
    assert write(tmp_path) == ["envelope.json", "events/old.event.v1.json"]


@pytest.mark.parametrize("path", sorted(path for path in files() if path != "asyncapi.json"))
def test_each_is_a_schema(path: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(files()[path]))


def test_every_event_has_a_schema_a_channel_and_a_message() -> None:
    document = json.loads(files()["asyncapi.json"])
    for name, version in catalogue():
        key = f"{name}.v{version}"
        assert f"events/{key}.json" in files()
        assert document["channels"][name]["messages"][key] == {"$ref": f"#/components/messages/{key}"}
        assert document["components"]["messages"][key]["name"] == f"seatrial.{key}"


def test_every_reference_leads_somewhere() -> None:
    made = {path: json.loads(text) for path, text in files().items()}

    def walk(path: str, node: Any) -> int:
        if isinstance(node, list):
            return sum(walk(path, inner) for inner in node)
        if not isinstance(node, dict):
            return 0
        count = sum(walk(path, inner) for inner in node.values())
        if isinstance(target := node.get("$ref"), str):
            file, _, pointer = target.partition("#")
            place = made[file or path]
            for part in pointer.split("/")[1:]:
                place = place[part.replace("~1", "/").replace("~0", "~")]
            return count + 1
        return count

    assert sum(walk(path, document) for path, document in made.items()) > len(catalogue())


def test_no_schema_tells_of_private_parts() -> None:
    assert not [path for path, text in files().items() if "private:" in text]


SCORED = TrialScored(
    execution_id=ids.new("execution"), execution=1, reward=0.5, rewards={"reward": 0.5},
    validity=Validity(verifier_isolation="separate", egress="public", egress_probed=True, cpus=1.0, memory_mb=None, pids=None, digests_pinned=True, executions=1),
    result=Result(key="k", digest="sha256:00", harness="0.26.0", harness_digest="sha256:00"),
    failure=failure("worker.lost"),
)  # fmt: skip
COMPLETED = RunCompleted(outcome="succeeded", evaluations=1, tally=Tally(trials=1, scored=1))


@pytest.mark.parametrize("happened", [SCORED, COMPLETED], ids=lambda event: event.type)
def test_a_real_message_fits_its_schemas(happened: Event) -> None:
    recorded = Recorded(
        1, ids.new("trial"), "trial", 1, ids.uuid7(), happened.type, happened.schema_version, "tem_1",
        datetime.datetime.now(datetime.UTC), encode_event(happened), encode_meta(Meta(actor="key_1", correlation="run_1")), b"\0" * 32,
    )  # fmt: skip
    message = json.loads(encode(recorded, instance="local", incarnation=ids.uuid7()))
    made = files()
    jsonschema.validate(message, json.loads(made["envelope.json"]))
    schema = json.loads(made[f"events/{happened.type}.v{happened.schema_version}.json"])
    jsonschema.validate(message["data"], schema)
    assert message["dataschema"] == schema["$id"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema)


def test_a_log_chunk_fits_its_schema() -> None:
    chunk = LogChunk(
        owner="trl_1", sequence=1, stream="stdout", phase="agent", time=datetime.datetime.now(datetime.UTC), text="x"
    )
    jsonschema.validate(json.loads(encode_chunk(chunk)), json.loads(files()["log-chunk.json"]))
