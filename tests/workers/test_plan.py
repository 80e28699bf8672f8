"""The plan of a trial: what its pack declares, within bounds, and nothing of the worker's own."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import ids
from app.domain import trial
from app.domain.agents import Agent
from app.domain.events import EvaluationCreated, Image
from app.domain.failures import Fault, Retry
from app.domain.pack import Pack
from app.domain.pack_parse import parse
from tests.workers import rig
from workers.dispatcher import plan
from workers.dispatcher.harness.model import TrialSpec

FILES = frozenset({"instruction.md", "environment/Dockerfile", "tests/test.sh", "solution/solve.sh"})
STEPS = FILES | {f"steps/{name}/{file}" for name in ("a", "b") for file in ("instruction.md", "tests/test.sh")}


def pack(text: str, files: frozenset[str] = FILES) -> Pack:
    return parse(f'version = "1.0"\n{text}', files)


def planned(
    pack: Pack, agent: Agent = rig.ORACLE, image: Image = rig.IMAGE, files: frozenset[str] | None = None
) -> TrialSpec:
    execution_id = ids.new("execution")
    state = trial.Trial(
        status=trial.Status.RUNNING, run_id=ids.new("run"), evaluation_id=ids.new("evaluation"),
        revision_id=ids.new("revision"), ordinal=1,
    )  # fmt: skip
    created = EvaluationCreated(
        run_id=state.run_id, ordinal=1, task_id=ids.new("task"), revision_id=state.revision_id,
        pack_digest="sha256:" + "1" * 64, image=image, agent=agent, agent_digest="sha256:" + "2" * 64, trials=1,
    )  # fmt: skip
    place = plan.Place(
        instance="here", team="tem_a", trial_id=ids.new("trial"), execution_id=execution_id, pack=Path("/pack"),
        scratch=Path("/scratch"),
    )  # fmt: skip
    return plan.plan(pack, created, state, place, files)


SECONDS = st.floats(0.1, 10_000).map(lambda seconds: round(seconds, 1))


@given(agent=SECONDS, verify=SECONDS)
def test_the_total_leaves_every_phase_its_own_time(agent: float, verify: float) -> None:
    found = planned(pack(f"[agent]\ntimeout_sec = {agent}\n[verifier]\ntimeout_sec = {verify}\n")).deadlines
    assert (found.agent, found.verify) == (agent, verify)
    assert found.total > found.provision + found.agent_setup + agent + verify


def test_an_agent_that_its_pack_does_not_bound_is_bounded() -> None:
    assert planned(pack("")).deadlines.agent == plan.AGENT_SECONDS


@given(agent=SECONDS, first=SECONDS, second=SECONDS)
def test_steps_keep_their_own_time(agent: float, first: float, second: float) -> None:
    text = (
        f"[agent]\ntimeout_sec = {agent}\n"
        f'[[steps]]\nname = "a"\n[steps.agent]\ntimeout_sec = {first}\n[steps.verifier]\ntimeout_sec = {second}\n'
        '[[steps]]\nname = "b"\n'
    )
    found = planned(pack(text, STEPS)).deadlines
    assert (found.agent, found.verify) == (None, None)  # said for the whole pack, either would be said for each step
    assert found.total > first + agent + second


def test_a_variable_without_a_value_is_named_and_is_the_callers_to_give() -> None:
    text = '[environment.env]\nTOKEN = "${TOKEN}"\nOTHER = "${OTHER:-none}"\nPLAIN = "x"\n'
    with pytest.raises(plan.Unplannable, match=r"environment\.env\.TOKEN") as raised:
        planned(pack(text))
    assert raised.value.failure.code == "run.variable_missing"
    assert "OTHER" not in raised.value.message


def test_an_agent_by_import_path_is_not_one_of_the_harness() -> None:
    spec = planned(pack(""), Agent(name="mine:Agent", model="m", settings={"depth": 2}))
    assert (spec.agent.name, spec.agent.import_path, spec.agent.settings) == (None, "mine:Agent", {"depth": 2})
    assert spec.agent.environment == {}


def test_the_packs_folder_for_work_wins_over_the_images() -> None:
    image = Image(reference="i", digest="i", size_bytes=1, architecture="amd64", workdir="/image")
    assert planned(pack(""), image=image).workdir == "/image"
    assert planned(pack('[environment]\nworkdir = "/pack"\n'), image=image).workdir == "/pack"


@given(st.lists(st.builds(ids.new, st.just("execution")), min_size=2, max_size=20, unique=True))
def test_scratch_names_are_short_and_each_executions_own(executions: list[str]) -> None:
    names = {plan.scratch_name(execution) for execution in executions}
    assert len(names) == len(executions)
    assert {len(name) for name in names} == {16}


def test_a_pack_without_a_solution_is_told_before_the_oracle_runs() -> None:
    with pytest.raises(plan.Unplannable, match=r"solution/solve\.sh") as raised:
        planned(pack(""), files=FILES - {"solution/solve.sh"})
    assert raised.value.failure.code == "pack.no_solution"
    planned(pack(""), files=FILES | {"solution/solve.sh"})
    planned(pack(""), Agent(name="nop"), files=FILES - {"solution/solve.sh"})


def test_an_agent_that_lacks_its_key_is_told_before_anything_else() -> None:
    wanting = pack('[environment.env]\nTOKEN = "${TOKEN}"\n')
    with pytest.raises(plan.Unplannable, match="claude-code needs a key") as raised:
        planned(wanting, Agent(name="claude-code", model="anthropic/claude"))
    found = raised.value.failure
    assert (found.code, found.fault, found.retry, found.scored) == (
        "agent.key_missing", Fault.CALLER, Retry.NEVER, False,
    )  # fmt: skip
    served = Agent(name="claude-code", settings={"base_url": "http://models.example/v1"})
    assert planned(pack(""), served).agent.name == "claude-code"
    assert planned(pack(""), Agent(name="mine:Agent")).agent.import_path == "mine:Agent"
