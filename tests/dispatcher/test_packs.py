"""Every pack of tests/packs does what the file beside it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dispatcher.rig import PACKS, Told, sandboxes_of, trial, trial_spec
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.harness.trial import AgentSpec
from workers.dispatcher.runtimes.port import Runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]

NAMES = sorted(path.parent.name for path in PACKS.glob("*/expected.json"))


@pytest.mark.parametrize("name", NAMES)
async def test_a_pack_is_observed_as_expected(name: str, tmp_path: Path, runtime: Runtime, servers: Servers) -> None:
    expected: dict[str, Any] = json.loads((PACKS / name / "expected.json").read_text())
    spec, told = trial_spec(tmp_path, name), Told()
    seen = await trial(spec, runtime, servers.of(AgentSpec()), told)
    context = (seen.exceptions, told.log)
    assert seen.state == expected.get("state", "finished"), context
    assert seen.rewards == expected["rewards"], context
    assert [[e.type, e.phase] for e in seen.exceptions] == expected.get("exceptions", []), context
    assert list(seen.timed_out) == expected.get("timed_out", [])
    assert (seen.oom_kills > 0) == expected.get("oom", False)
    for fact, value in expected.get("verifier", {}).items():
        assert getattr(seen.verifiers[0], fact) == value, (fact, seen.verifiers)
    if seen.verifiers:
        assert (sum(facts.strays_killed for facts in seen.verifiers) > 0) == expected.get("strays", False)
    if "verifiers" in expected:
        assert [facts.isolation for facts in seen.verifiers] == expected["verifiers"]
    if "network" in expected:
        assert seen.effective is not None
        assert seen.effective.network == expected["network"]
    for text in expected.get("log", []):
        assert text in told.log, told.log
    for path in expected.get("files", []):
        assert (seen.files / path).is_file(), path
    for path in expected.get("absent", []):
        assert not (seen.files / path).is_symlink(), path
        assert not (seen.files / path).exists(), path
    assert not [path for path in seen.files.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())]
    assert seen.teardown_error is None
    assert not await sandboxes_of(runtime, spec)
    assert not list((tmp_path / ".transfer").iterdir())
