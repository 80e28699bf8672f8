"""What shall run: a trial's spec from its pack and its evaluation. Pure."""

import hashlib
import uuid
from pathlib import Path

import msgspec

from app import ids
from app.domain import model_access
from app.domain.agents import Agent
from app.domain.events import EvaluationCreated
from app.domain.failures import Failure, failure
from app.domain.pack import Network, Pack, Variable
from app.domain.trial import Trial
from workers.dispatcher.harness.model import AgentSpec, Deadlines, NetworkPolicies, Resources, TrialSpec
from workers.dispatcher.runtimes.port import Labels, NetworkPolicy

ORACLE, SOLUTION = "oracle", "solution/solve.sh"
AGENT_SECONDS = 3600.0
"""For a pack that bounds its agent by nothing; Harbor would let it run for ever."""
SETUP_SECONDS = 360.0
PROVISION_SECONDS = 600.0
SLACK_SECONDS = 300.0
"""For what no phase's own deadline covers: transfers, artifacts, the harness itself."""


class Unplannable(Exception):
    """The trial cannot run as its pack asks; `failure` says why."""

    def __init__(self, failed: Failure, message: str) -> None:
        super().__init__(message)
        self.failure, self.message = failed, message


class Place(msgspec.Struct, frozen=True):
    """Where the trial runs, and under whose name."""

    instance: str
    team: str
    trial_id: str
    execution_id: str
    pack: Path
    scratch: Path


def plan(
    pack: Pack, created: EvaluationCreated, trial: Trial, place: Place, files: frozenset[str] | None = None
) -> TrialSpec:
    """`files`: the pack's, when they are known; then a pack without a solution is told before it runs. Raises Unplannable."""
    _check_key(created.agent)
    _check_variables(pack)
    if files is not None and created.agent.name == ORACLE:
        _check_solution(pack, files)
    environment = pack.environment
    return TrialSpec(
        execution_id=place.execution_id,
        trial_id=place.trial_id,
        run_id=trial.run_id,
        team=place.team,
        trial_uuid=str(execution_uuid(place.execution_id)),
        task_folder=place.pack,
        image=created.image.reference,
        workdir=environment.workdir or created.image.workdir,
        agent=agent_spec(created.agent),
        deadlines=deadlines(pack),
        resources=Resources(environment.cpus, environment.memory_mb, environment.storage_mb),
        network=NetworkPolicies(
            baseline=_policy(environment.network),
            agent=_policy(pack.agent.network) if pack.agent.network else None,
            verify=_policy(pack.verifier.network) if pack.verifier.network else None,
        ),
        labels=Labels(
            instance=place.instance,
            team=place.team,
            run=trial.run_id,
            trial=place.trial_id,
            execution=place.execution_id,
        ),
        scratch=place.scratch,
    )


def agent_spec(agent: Agent) -> AgentSpec:
    return AgentSpec(
        name=None if agent.import_path else agent.name,
        import_path=agent.import_path,
        version=agent.version,
        model=agent.model,
        settings=agent.settings,
    )


def deadlines(pack: Pack) -> Deadlines:
    """Seconds by phase; the total is what all phases and steps may take together, and some slack.

    What steps declare for themselves counts, so for those no deadline of the whole pack is said.
    """
    agent = pack.agent.timeout_seconds or AGENT_SECONDS
    verify = pack.verifier.timeout_seconds
    agents = sum(step.agent.timeout_seconds or agent for step in pack.steps) or agent
    verifies = sum(step.verifier.timeout_seconds for step in pack.steps) or verify
    return Deadlines(
        agent=None if any(step.agent.timeout_seconds for step in pack.steps) else agent,
        verify=None if pack.steps else verify,
        total=PROVISION_SECONDS + SETUP_SECONDS + agents + verifies + SLACK_SECONDS,
        provision=PROVISION_SECONDS,
        agent_setup=SETUP_SECONDS,
    )


def execution_uuid(execution_id: str) -> uuid.UUID:
    """The UUID inside an execution's id: what Harbor calls the trial."""
    return ids.parse(execution_id)


def scratch_name(execution_id: str) -> str:
    """Short, because socket paths and container names below it are bounded."""
    return hashlib.sha256(execution_id.encode()).hexdigest()[:16]


def _policy(network: Network) -> NetworkPolicy:
    return NetworkPolicy(mode=network.mode.value, allowed_hosts=network.allowed_hosts)


def _check_key(agent: Agent) -> None:
    """An agent that certainly lacks its key would be installed for minutes, to fail then."""
    if (lacking := model_access.lacks_key(agent)) is not None:
        raise Unplannable(failure(model_access.KEY_MISSING), lacking)


def _check_solution(pack: Pack, files: frozenset[str]) -> None:
    """The oracle carries out the pack's own solution, which has to be there. (Of a pack with steps Harbor decides.)"""
    if not pack.steps and SOLUTION not in files:
        message = f"the oracle agent needs {SOLUTION}, and the pack has none; run another agent on it"
        raise Unplannable(failure("pack.no_solution"), message)


def _check_variables(pack: Pack) -> None:
    tables: tuple[tuple[str, tuple[Variable, ...]], ...] = (
        ("environment.env", pack.environment.env),
        ("verifier.env", pack.verifier.env),
        ("solution.env", pack.solution_env),
        *((f"steps.{step.name}.verifier.env", step.verifier.env) for step in pack.steps),
    )
    for field, variables in tables:
        for variable in variables:
            if variable.source is not None and variable.default is None:
                raise Unplannable(
                    failure("run.variable_missing"),
                    f"{field}.{variable.name}: the pack wants ${{{variable.source}}}, and runs give no variables yet",
                )
