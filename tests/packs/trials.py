"""One trial of a pack: built as the builder builds it, planned, run and judged as the dispatcher does."""

import asyncio
import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from app import ids
from app.domain import trial
from app.domain.agents import Agent, agent_digest
from app.domain.events import EvaluationCreated, Image
from app.domain.failures import failure
from app.domain.pack import FromDockerfile, Pack, PackInvalid
from app.domain.pack_parse import parse
from workers.builder.build.docker import DockerBackend
from workers.builder.build.port import BuildLine, BuildSpec
from workers.dispatcher import plan, verdict
from workers.dispatcher.harness.model import LogChunk, TrialObservation
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.harness.trial import run_trial
from workers.dispatcher.runtimes.docker import DockerRuntime
from workers.dispatcher.verdict import Verdict

PACKS = Path(__file__).parent
ORACLE = Agent(name="oracle")


@dataclass
class Grounds:
    runtime: DockerRuntime
    servers: Servers
    backend: DockerBackend
    instance: str
    folder: Path
    revisions: list[str] = field(default_factory=list)
    images: dict[str, asyncio.Task[Image]] = field(default_factory=dict)
    """By the text of their Dockerfile: most packs share one."""

    async def image(self, folder: Path, pack: Pack) -> Image:
        assert isinstance(pack.image, FromDockerfile)
        context = folder / pack.image.folder
        text = (context / pack.image.dockerfile).read_text()
        if text not in self.images:
            self.images[text] = asyncio.create_task(self._build(context, pack))
        return await self.images[text]

    async def _build(self, context: Path, pack: Pack) -> Image:
        self.revisions.append(ids.new("revision"))

        async def ignore(_: BuildLine) -> None: ...

        spec = BuildSpec(
            revision=self.revisions[-1],
            team="tem_packs",
            instance=self.instance,
            pack_digest="sha256:" + "0" * 64,
            context=context,
            timeout_seconds=pack.environment.build_timeout_seconds,
            pull=False,
            network="none",
        )
        return (await self.backend.build(spec, ignore)).image


@dataclass(frozen=True)
class Ended:
    """How a trial ended; `seen` is None when it could not even be tried."""

    verdict: Verdict
    seen: TrialObservation | None = None
    log: str = ""
    left: int = 0
    """Sandboxes of it that were there afterwards."""


async def run(grounds: Grounds, name: str) -> Ended:
    source = PACKS / name
    files = frozenset(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    try:
        pack = parse((source / "task.toml").read_text(), files)
    except PackInvalid as error:
        return Ended(Verdict(outcome="errored", failure=failure("pack.invalid"), message=str(error)))
    image = await grounds.image(source, pack)
    execution_id = ids.new("execution")
    scratch = grounds.folder / plan.scratch_name(execution_id)
    place = plan.Place(
        instance=grounds.instance, team="tem_packs", trial_id=ids.new("trial"), execution_id=execution_id,
        pack=source, scratch=scratch,
    )  # fmt: skip
    state = trial.Trial(
        status=trial.Status.RUNNING, run_id=ids.new("run"), evaluation_id=ids.new("evaluation"),
        revision_id=ids.new("revision"), ordinal=1, executions=1, execution_id=execution_id,
    )  # fmt: skip
    try:
        spec = plan.plan(pack, _created(image, state), state, place)
    except plan.Unplannable as error:
        return Ended(Verdict(outcome="errored", failure=error.failure, message=error.message))
    scratch.mkdir()
    chunks: list[LogChunk] = []

    async def keep(chunk: LogChunk) -> None:
        chunks.append(chunk)

    try:
        seen = await run_trial(
            spec, grounds.runtime, grounds.servers.of(spec.agent),
            on_phase=lambda _: None, on_log=keep, cancel=asyncio.Event(),
        )  # fmt: skip
        sandboxes = await grounds.runtime.list_sandboxes(grounds.instance)
        left = sum(one.labels.execution == execution_id for one in sandboxes)
        log = "".join(chunk.text for chunk in chunks)[-20_000:]
        return Ended(verdict.judge(seen, verified=spec.verify), seen, log, left)
    finally:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(shutil.rmtree, scratch)


def _created(image: Image, state: trial.Trial) -> EvaluationCreated:
    return EvaluationCreated(
        run_id=state.run_id,
        ordinal=1,
        task_id=ids.new("task"),
        revision_id=state.revision_id,
        pack_digest="sha256:" + "0" * 64,
        image=image,
        agent=ORACLE,
        agent_digest=agent_digest(ORACLE),
        trials=1,
    )
