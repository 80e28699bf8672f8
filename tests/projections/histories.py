"""Lawful histories: whatever can happen, decided by the domain itself, in an order that chance chooses."""

import datetime
import hashlib
import random
from collections.abc import Callable
from typing import Any

from app import ids
from app.domain import evaluation, evidence, failures, revision, run, trial
from app.domain.agents import Agent
from app.domain.events import Image, Result, Tally, TaskCreated, Validity
from app.domain.refusal import Refused
from app.domain.registry import Draft, Meta
from app.domain.run import Member
from app.eventlog.drafts import unit_of
from app.eventlog.model import Unit

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
AGENTS = (Agent(name="oracle"), Agent(name="nop"), Agent(name="cla\0ude", model="m", settings={"x": "\0", "n": 1e300}))
REWARDS = (0.0, 1.0, 0.1, 0.2, 1 / 3, -2.5, 1e-150, 1e100)


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class World:
    """The state of every stream so far, and the units that led there."""

    def __init__(self, random: random.Random, *, teams: int = 2) -> None:
        self.random = random
        self.origin = ids.new("worker")
        """Another history of the same choices has other ids: they do not collide in one database."""
        self.made = 0
        self.units: list[Unit] = []
        self.now = START
        self.teams = [self.new("team") for _ in range(teams)]
        self.states: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.team_of: dict[str, str] = {}
        self.root_of: dict[str, str] = {}
        """The run or revision of a stream."""
        self.tasks: list[str] = []
        self.members: dict[str, tuple[Member, ...]] = {}
        self.created: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.agents = {team: ids.derive("agent", team, 1) for team in self.teams}
        """A stored agent of each team: every second run names it."""

    def new(self, kind: str) -> str:
        self.made += 1
        return ids.derive(kind, self.origin, self.made)

    def of(self, kind: type[Any], when: Callable[[Any], bool] = lambda _: True) -> list[str]:
        return [stream for stream, state in self.states.items() if isinstance(state, kind) and when(state)]

    def write(self, category: str, stream: str, drafts: tuple[Draft, ...], evolve: Any) -> None:
        self.now += datetime.timedelta(seconds=1)
        if not drafts:
            return
        version = self.versions.get(stream, 0)
        meta = Meta(actor="wrk_test", correlation=self.root_of.get(stream))
        self.units.append(unit_of(category, stream, self.team_of[stream], version, drafts, meta))
        self.versions[stream] = version + len(drafts)
        state = self.states.get(stream)
        for draft in drafts:
            state = evolve(state, draft.event)
        self.states[stream] = state

    def do(self, room: Any, category: str, stream: str, command: Any) -> bool:
        """Decide and write. False when the domain refused."""
        timeless = room in (run, evaluation)
        state = self.states.get(stream)
        drafts = room.decide(state, command) if timeless else room.decide(state, command, self.now)
        if isinstance(drafts, Refused):
            return False
        self.write(category, stream, drafts, room.evolve)
        return True

    # ------------------------------------------------------------ what may happen

    def make_task(self) -> None:
        task = self.new("task")
        self.team_of[task] = self.random.choice(self.teams)
        self.tasks.append(task)
        self.write("task", task, (Draft(TaskCreated(), {"name": f"task {len(self.tasks)}"}),), lambda *_: None)

    def upload(self) -> None:
        if not self.tasks:
            self.make_task()
            return
        task, stream = self.random.choice(self.tasks), self.new("revision")
        self.team_of[stream], self.root_of[stream] = self.team_of[task], stream
        pack = digest(stream)
        self.do(
            revision,
            "revision",
            stream,
            revision.Upload(
                task_id=task,
                pack_digest=pack,
                archive_digest=pack,
                archive_bytes=2**40,
                object_key=f"p/{pack}",
                files=3,
            ),
        )

    def build(self) -> None:
        open_ones = self.of(revision.Revision, lambda state: state.status in ("uploaded", "building"))
        if not open_ones:
            self.upload()
            return
        stream = self.random.choice(open_ones)
        match self.random.randrange(5):
            case 0:
                code = self.random.choice(["build.engine_unavailable", "build.step_failed", "pack.invalid"])
                command: Any = revision.FailBuild(failure=failures.failure(code), message="no")
            case 1 | 2:
                image = Image(
                    reference="x@y", digest=digest("image"), size_bytes=9, architecture="amd64", workdir="/\0"
                )
                command = revision.FinishBuild(image=image, build_ms=12, warnings=("odd",), log_key="l")
            case _:
                command = revision.StartBuild(worker="wrk_b", epoch=1)
        self.do(revision, "revision", stream, command)

    def request(self) -> None:
        ready = self.of(revision.Revision, lambda state: state.status == "ready")
        if not ready:
            self.build()
            return
        first = self.random.choice(ready)
        team = self.team_of[first]
        chosen = [first, *[one for one in ready if self.team_of[one] == team and one != first][:2]]
        members = tuple(
            Member(
                task_id=self.states[one].task_id,
                revision_id=one,
                pack_digest=self.states[one].pack_digest,
                image=self.states[one].image,
            )
            for one in chosen
        )
        stream = self.new("run")
        self.team_of[stream], self.root_of[stream], self.members[stream] = team, stream, members
        self.numbers[team] = self.numbers.get(team, 0) + 1
        self.do(
            run,
            "run",
            stream,
            run.Request(
                number=self.numbers[team],
                agent=self.random.choice(AGENTS),
                agent_id=self.agents[team] if self.numbers[team] % 2 else None,
                trials=self.random.randint(1, 3),
                roster=digest("roster"),
                evaluations=len(members),
                name=self.random.choice([None, "nightly"]),
                labels=self.random.choice([{}, {"branch": "main"}]),
                deadline_seconds=self.random.choice([None, 60]),
            ),
        )

    def retry(self) -> None:
        """A new run of a completed one that has something left to score."""
        old = self.of(run.Run, lambda state: state.tally is not None and 0 < state.tally.scored < state.tally.trials)
        old = old or self.of(run.Run, lambda state: state.tally is not None and not state.tally.scored)
        if not old:
            self.request()
            return
        origin, stream = self.random.choice(old), self.new("run")
        state, team = self.states[origin], self.team_of[origin]
        self.team_of[stream], self.root_of[stream], self.members[stream] = team, stream, self.members[origin]
        self.numbers[team] += 1
        request = run.Request(
            number=self.numbers[team],
            agent=state.agent,
            agent_id=state.agent_id,
            trials=state.trials,
            roster=state.roster,
            evaluations=state.evaluations,
            priority=state.priority,
            derived_from=origin,
        )
        self.do(run, "run", stream, request)

    def earlier(self, state: run.Run, ordinal: int, number: int) -> trial.Earlier | None:
        """The trial in the same place of the run that is retried."""
        if state.derived_from is None:
            return None
        stream = ids.derive("trial", ids.derive("evaluation", state.derived_from, ordinal), number)
        ran = self.states.get(stream)
        return None if ran is None else trial.Earlier(trial_id=stream, state=ran, head_hash=digest(stream)[7:])

    def expand(self) -> None:
        waiting = self.of(run.Run, lambda state: state.status == "requested")
        waiting = [one for one in waiting if self.created.get(one, 0) < len(self.members[one])]
        if not waiting:
            self.request()
            return
        stream = self.random.choice(waiting)
        state, ordinal = self.states[stream], self.created.get(stream, 0) + 1
        self.created[stream] = ordinal
        member = self.members[stream][ordinal - 1]
        child = ids.derive("evaluation", stream, ordinal)
        self.team_of[child], self.root_of[child] = self.team_of[stream], stream
        self.do(
            evaluation,
            "evaluation",
            child,
            evaluation.Create(run_id=stream, run=state, ordinal=ordinal, member=member),
        )
        for number in range(1, state.trials + 1):
            one = ids.derive("trial", child, number)
            self.team_of[one], self.root_of[one] = self.team_of[stream], stream
            queue = trial.Queue(
                run_id=stream,
                evaluation_id=child,
                revision_id=member.revision_id,
                ordinal=number,
                priority=state.priority,
                earlier=self.earlier(state, ordinal, number),
            )
            self.do(trial, "trial", one, queue)

    def work(self) -> None:
        open_ones = self.of(trial.Trial, lambda state: not state.status.ended)
        if not open_ones:
            self.expand()
            return
        stream = self.random.choice(open_ones)
        state: trial.Trial = self.states[stream]
        execution = state.execution_id or self.new("execution")
        result = Result(
            key=f"e/{execution}", digest=digest(execution), harness="h", harness_digest="d", timings_ms={"agent": 5}
        )
        match self.random.randrange(12):
            case 0 | 1:
                code = self.random.choice([*failures.CODES])
                command: Any = trial.Fail(
                    failure=failures.failure(code),
                    message="it broke",
                    execution_id=self.random.choice([None, execution]),
                    result=self.random.choice([None, result]),
                )
            case 2 | 3 | 4:
                validity = Validity(
                    verifier_isolation="separate",
                    egress="public",
                    egress_probed=True,
                    cpus=1.5,
                    memory_mb=None,
                    pids=10,
                    digests_pinned=True,
                    executions=max(1, state.executions),
                )
                command = trial.Score(
                    execution_id=execution,
                    rewards={"reward": self.random.choice(REWARDS), "other": 0.25},
                    validity=validity,
                    result=result,
                    failure=self.random.choice([None, failures.failure("agent.timed_out")]),
                    message=self.random.choice([None, "slow"]),
                    recovered=self.random.random() < 0.2,
                )
                if state.status != "running" and self.random.random() < 0.9:
                    command = trial.Start(execution_id=self.new("execution"), worker="wrk_d", epoch=1)
            case 5:
                command = trial.Cancel()
            case 6:
                command = trial.EndCancelled(execution_id=self.random.choice([None, execution]))
            case 7 | 8:
                command = trial.EnterPhase(execution_id=execution, phase=self.random.choice(["agent", "verify"]))
            case _:
                command = (
                    trial.Admit()
                    if state.status == "queued"
                    else trial.Start(execution_id=self.new("execution"), worker="wrk_d", epoch=state.executions + 1)
                )
        self.do(trial, "trial", stream, command)

    def tally(self, evaluation_id: str) -> Tally:
        mine = [state for state in self.states.values() if isinstance(state, trial.Trial)]
        mine = [state for state in mine if state.evaluation_id == evaluation_id]
        errored: dict[str, int] = {}
        for state in mine:
            if state.status == "errored" and state.failure is not None:
                errored[state.failure.fault] = errored.get(state.failure.fault, 0) + 1
        return Tally(
            trials=len(mine),
            scored=sum(state.status == "scored" for state in mine),
            cancelled=sum(state.status == "cancelled" for state in mine),
            errored=errored,
        )

    def complete(self) -> None:
        for stream in self.of(evaluation.Evaluation, lambda state: state.status == "open"):
            tally = self.tally(stream)
            if self.do(evaluation, "evaluation", stream, evaluation.Complete(tally=tally)):
                proof = ids.derive("evidence", stream, 1)
                self.team_of[proof], self.root_of[proof] = self.team_of[stream], self.root_of[stream]
                run_id = self.states[stream].run_id
                self.do(evidence, "evidence", proof, evidence.Owe(evaluation_id=stream, run_id=run_id))
        for stream in self.of(run.Run, lambda state: state.status != "completed"):
            state, made = self.states[stream], self.created.get(stream, 0)
            mine = [ids.derive("evaluation", stream, ordinal) for ordinal in range(1, made + 1)]
            if any(self.states[one].status != "completed" for one in mine):
                continue
            if made < state.evaluations and state.status != "cancelling":
                continue
            tallies = [self.tally(one) for one in mine]
            errored: dict[str, int] = {}
            for tally in tallies:
                for fault, count in tally.errored.items():
                    errored[fault] = errored.get(fault, 0) + count
            never = (state.evaluations - made) * state.trials
            whole = Tally(
                trials=state.evaluations * state.trials,
                scored=sum(tally.scored for tally in tallies),
                cancelled=sum(tally.cancelled for tally in tallies) + never,
                errored=errored,
            )
            self.do(run, "run", stream, run.Complete(tally=whole, cancelled=whole.cancelled > 0))

    def prove(self) -> None:
        owed = self.of(evidence.Evidence, lambda state: state.status != "sealed")
        if not owed:
            self.complete()
            return
        stream = self.random.choice(owed)
        state = self.states[stream]
        if state.status != "sealing":
            command: Any = evidence.Start(worker="wrk_a", epoch=1)
        elif self.random.random() < 0.3:
            command = evidence.Fail(failure=failures.failure("store.unavailable"), message="it slept")
        else:
            command = evidence.Seal(
                archive_key="k",
                archive_digest=digest("a"),
                archive_bytes=10,
                manifest_digest=digest("m"),
                provenance_digest=digest("p"),
                sbom_digest=digest("s"),
                files=4,
            )
        self.do(evidence, "evidence", stream, command)

    def cancel_run(self) -> None:
        going = self.of(run.Run, lambda state: state.status == "requested")
        if going and self.random.random() < 0.3:
            self.do(run, "run", self.random.choice(going), run.Cancel())


def history(random: random.Random, steps: int, *, teams: int = 2) -> World:
    """A world after about `steps` events."""
    world = World(random, teams=teams)
    moves = [
        (world.make_task, 2),
        (world.upload, 3),
        (world.build, 8),
        (world.request, 3),
        (world.retry, 4),
        (world.expand, 4),
        (world.work, 40),
        (world.complete, 6),
        (world.prove, 6),
        (world.cancel_run, 2),
    ]
    choices, weights = zip(*moves, strict=True)
    while sum(len(unit.events) for unit in world.units) < steps:
        random.choices(choices, weights)[0]()
    return world


def finished(random: random.Random, *, runs: int, evaluations: int = 3) -> World:
    """Runs of one team from upload to score, all scored, interleaved as they would be: for plans and measurements."""
    world = World(random, teams=1)
    world.make_task()
    while len(world.of(revision.Revision)) < evaluations:
        world.upload()
    for stream in world.of(revision.Revision):
        world.do(revision, "revision", stream, revision.StartBuild(worker="wrk_b", epoch=1))
        image = Image(reference="x@y", digest=digest("image"), size_bytes=9, architecture="amd64")
        world.do(revision, "revision", stream, revision.FinishBuild(image=image, build_ms=1))
    for _ in range(runs):
        world.request()
    for _ in range(runs * min(3, evaluations)):
        world.expand()
    for status in ("queued", "admitted", "running"):
        for stream in world.of(trial.Trial, lambda state, status=status: state.status == status):
            step(world, stream)
    world.complete()
    return world


def step(world: World, stream: str) -> None:
    """The next thing that happens to a trial, if all goes well: admitted, then started, then scored."""
    state: trial.Trial = world.states[stream]
    if state.status == "queued":
        world.do(trial, "trial", stream, trial.Admit())
        return
    if state.status == "admitted":
        execution = world.new("execution")
        world.do(trial, "trial", stream, trial.Start(execution_id=execution, worker="wrk_d", epoch=1))
        for phase in ("provision", "agent", "verify"):
            world.do(trial, "trial", stream, trial.EnterPhase(execution_id=execution, phase=phase))
        return
    execution = str(state.execution_id)
    validity = Validity(
        verifier_isolation="separate",
        egress="public",
        egress_probed=True,
        cpus=1,
        memory_mb=512,
        pids=10,
        digests_pinned=True,
        executions=1,
    )
    result = Result(key="k", digest=digest(execution), harness="h", harness_digest="d", timings_ms={"agent": 5})
    score = trial.Score(
        execution_id=execution, rewards={"reward": world.random.choice([0.0, 1.0])}, validity=validity, result=result
    )
    world.do(trial, "trial", stream, score)
