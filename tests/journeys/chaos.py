"""A random schedule of kills, freezes and losses while runs go on.

    python -m tests.journeys.chaos --seed 7 --trials 100 --kills 200

What is done, to whom and after which pause follows from the seed (and the two options) alone; when a step finds nobody (a
harness child between two trials) it is told and does not count. The container engine that is killed is the chaos's own
(own_engine.py). Afterwards everything must hold (holds.py), and a trial that has no score must say that the platform is at
fault, and have had all of its tries.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from app.domain.events import TrialErrored, TrialScored
from app.domain.failures import CODES, Fault
from tests.journeys import no_op
from tests.journeys.history import History
from tests.journeys.holds import everything_holds
from tests.journeys.losses import Backup, bus_store
from tests.journeys.own_engine import OwnEngine
from tests.journeys.packs import write_pack
from tests.journeys.system import ENGINE, GROUPS, HARNESS, LEASE_SECONDS, ROOT, SERVERS, NotThere, System, is_alive

MACHINE = "machine"
CONTAINERS = "engine with its containers"
TRIALS_A_RUN = 5
NO_OPS_A_RUN = 25
FREEZABLE = ("dispatcher", "foreman", "relay", "projector", "builder", "postgres", "nats")


class Step(msgspec.Struct, frozen=True):
    after_seconds: float
    action: Literal["kill", "freeze", "wipe", "forget", "back up", "restore"]
    targets: tuple[str, ...]
    away_seconds: float
    """How long nobody starts again what was killed, or how long it is frozen; for `forget`, how much the bus forgets."""


class Asked(msgspec.Struct, frozen=True):
    """A run that somebody wants."""

    trials: int
    agent: str


class Outcome(msgspec.Struct, frozen=True):
    seed: int
    kills: dict[str, int]
    freezes: dict[str, int]
    losses: dict[str, int]
    trials: int
    scored: int
    errored: dict[str, int]
    """By code."""
    no_ops: int
    """Of the trials: those without a sandbox, which end as errored with a code of their own."""
    executions: int
    events: int
    forgotten: int
    """Events that a restore of the database lost, and the bus had."""
    seconds: float


def schedule(seed: int, *, engine: bool = False, restores: bool = False) -> Iterator[Step]:
    """Without end. Most steps kill one process; some take two at once, the whole machine, or freeze one beyond its lease;
    a few take from the bus what it has. `engine`: the container engine dies too. `restores`: so does the database's disk."""
    chance = random.Random(seed)
    # Trials pass through the harness and the dispatcher: they get their share.
    everybody = (*GROUPS, *SERVERS, *HARNESS, "dispatcher", "harness child", *((ENGINE, CONTAINERS) if engine else ()))
    freezable = (*FREEZABLE, *((ENGINE,) if engine else ()))
    backed_up = False
    while True:
        kind = chance.random()
        after = round(chance.expovariate(1 / 1.5), 2)
        if kind < 0.11:
            target = chance.choice(freezable)
            yield Step(after, "freeze", (target,), round(chance.uniform(0.2, 2.2) * LEASE_SECONDS, 2))
        elif kind < 0.13:
            yield Step(after, "kill", (MACHINE,), round(chance.uniform(0, LEASE_SECONDS), 2))
        elif kind < 0.16:
            action = chance.choice(("wipe", "forget"))
            yield Step(after, action, ("nats",), round(chance.uniform(0.5, LEASE_SECONDS), 2))
        elif restores and kind < 0.20:
            yield Step(after, "restore" if backed_up else "back up", ("postgres",), 0.0)
            backed_up = not backed_up
        else:
            count = 2 if kind > 0.92 else 1
            away = 0.0 if chance.random() < 0.7 else round(chance.uniform(0, 2.5) * LEASE_SECONDS, 2)
            yield Step(after, "kill", tuple(dict.fromkeys(chance.sample(everybody, count))), away)


class Chaos:
    def __init__(self, system: System, tasks: list[str], say: Callable[[str], None], scratch: Path) -> None:
        """`scratch`: an empty folder, for copies of what the servers keep."""
        self.system, self.tasks, self.say, self.scratch = system, tasks, say, scratch
        self.kills: collections.Counter[str] = collections.Counter()
        self.freezes: collections.Counter[str] = collections.Counter()
        self.losses: collections.Counter[str] = collections.Counter()
        self.runs: dict[str, Asked] = {}
        """Those that the API accepted and the log still has."""
        self.waiting: list[Asked] = []
        self.backup: Backup | None = None
        self.forgotten: set[str] = set()

    async def run(
        self, seed: int, *, trials: int, kills: int, no_ops: int = 0, engine: bool = False, restores: bool = False
    ) -> Outcome:
        """Start runs of so many trials in all while at least so many processes are killed; then everything must hold."""
        began = time.monotonic()
        asking: list[asyncio.Task[None]] = []
        self.waiting = _runs(trials, no_ops)
        started = 0
        for number, step in enumerate(schedule(seed, engine=engine, restores=restores), 1):
            while self.waiting and started <= (trials + no_ops) * self.kills.total() / kills:
                asked = self.waiting.pop(0)
                asking.append(asyncio.create_task(self._start(len(asking), asked)))
                started += asked.trials
            if self.kills.total() >= kills and not self.waiting and all(one.done() for one in asking):
                break
            await asyncio.sleep(step.after_seconds)
            self.say(f"{time.monotonic() - began:7.2f} s  step {number}: {_told(step)}{await self._do(step)}")
        await asyncio.gather(*asking)
        history = await everything_holds(self.system, forgotten=frozenset(self.forgotten))
        return self._outcome(seed, history, time.monotonic() - began)

    async def _start(self, number: int, asked: Asked) -> None:
        task = self.tasks[number % len(self.tasks)]
        run = await self.system.api.start([task], trials=asked.trials, agent=asked.agent)
        self.runs[run["id"]] = asked

    # ------------------------------------------------------------ one step

    async def _do(self, step: Step) -> str:
        """Returns what to say of it."""
        match step.action:
            case "freeze":
                return await self._freeze(step)
            case "wipe" | "forget":
                return await self._take_from_the_bus(step)
            case "back up":
                self.backup = await self._back_up()
                return ""
            case "restore":
                return await self._restore()
            case "kill" if step.targets == (MACHINE,):
                await self._die()
                await asyncio.sleep(step.away_seconds)
                await self._start_again()
                return ""
            case "kill":
                return await self._kill(step)

    async def _kill(self, step: Step) -> str:
        missed: list[str] = []
        keep_containers: bool | None = None
        with self.system.nobody_restarts() if step.away_seconds else contextlib.nullcontext():
            for target in step.targets:
                if target in (ENGINE, CONTAINERS):
                    assert self.system.own_engine is not None
                    if keep_containers is None:
                        self.kills[target] += 1
                    keep_containers = target == ENGINE and keep_containers is not False
                    self.system.own_engine.kill(containers=not keep_containers)
                    continue
                try:
                    self.system.kill(target)
                    self.kills[target] += 1
                except NotThere:
                    missed.append(target)
            await asyncio.sleep(step.away_seconds)
        if keep_containers is not None and self.system.own_engine is not None:
            self.system.own_engine.start(keep_containers=keep_containers)
        return f"  ({', '.join(missed)} not there)" if missed else ""

    async def _freeze(self, step: Step) -> str:
        (target,) = step.targets
        with self.system.frozen(target) as pids:
            if not pids:
                return "  (not there)"
            self.freezes[target] += 1
            await asyncio.sleep(step.away_seconds)
        return ""

    async def _die(self) -> None:
        """A power cut: whatever engine is ours goes with the rest."""
        await self.system.die()
        if self.system.own_engine is not None:
            self.system.own_engine.kill(containers=True)
        self.kills[MACHINE] += 1

    async def _start_again(self, *, restored: bool = False) -> None:
        if self.system.own_engine is not None:
            self.system.own_engine.start(keep_containers=False)
        await self.system.start(restored=restored)

    # ------------------------------------------------------------ losses

    async def _take_from_the_bus(self, step: Step) -> str:
        """All of it, or what came within some seconds, as a power cut may take what was not synced yet."""
        store, aside = bus_store(self.system), self.scratch / "bus"
        if step.action == "forget":
            with self.system.nobody_restarts():
                await self._without_bus()
                shutil.rmtree(aside, ignore_errors=True)
                if not store.exists():
                    return "  (it has nothing)"
                shutil.copytree(store, aside)
            await asyncio.sleep(step.away_seconds)
        with self.system.nobody_restarts():
            await self._without_bus()
            shutil.rmtree(store, ignore_errors=True)
            if step.action == "forget":
                shutil.copytree(aside, store)
        self.losses[f"the bus {'forgot its end' if step.action == 'forget' else 'was wiped'}"] += 1
        return ""

    async def _without_bus(self) -> None:
        """While nobody restarts it: kill it, unless it is dead already, and wait for its end."""
        with contextlib.suppress(NotThere):
            killed = self.system.kill("nats")
            self.kills["nats"] += 1
            while is_alive(killed):
                await asyncio.sleep(0.01)

    async def _back_up(self) -> Backup:
        """Of the database's folder after a power cut: what a disk's snapshot has."""
        await self._die()
        backup = Backup(self.system.home / "postgres", self.scratch / "backup")
        backup.take()
        await self._start_again()
        return backup

    async def _restore(self) -> str:
        """Back to the backup, and what an operator then does. The runs that are lost with it are asked for again."""
        assert self.backup is not None
        await self._die()
        lost = await self.backup.put_back()
        self.forgotten |= lost
        await self._start_again(restored=True)
        self.system.api.position = ""
        known = {one["id"] async for one in self.system.api.pages("/v1/runs")}
        gone = set(self.runs) - known
        self.waiting += [self.runs.pop(run) for run in gone]
        self.losses["the database was restored"] += 1
        return f"  ({len(lost)} events and {len(gone)} runs lost)"

    # ------------------------------------------------------------ the end

    def _outcome(self, seed: int, history: History, seconds: float) -> Outcome:
        trials = [trial for run in self.runs for trial in history.trials_of_run(run)]
        assert len(trials) == sum(asked.trials for asked in self.runs.values()), (
            "a run has other trials than were asked for"
        )
        ends = [history.end(trial) for trial in trials]
        errored = [end for end in ends if isinstance(end, TrialErrored)]
        no_ops = [end for end in errored if end.failure.code == no_op.CODE]
        failed = [end for end in errored if end.failure.code != no_op.CODE]
        blamed = [end for end in failed if end.failure.fault is not Fault.PLATFORM]
        assert not blamed, f"not the platform's fault, it says: {blamed}"
        early = [end for end in failed if end.executions < CODES[end.failure.code].limit]
        assert not early, f"given up before their last try: {early}"
        for end in ends:
            assert not isinstance(end, TrialScored) or end.reward == 1.0, end
        return Outcome(
            seed=seed,
            kills=dict(self.kills),
            freezes=dict(self.freezes),
            losses=dict(self.losses),
            trials=len(ends),
            scored=sum(isinstance(end, TrialScored) for end in ends),
            errored=dict(collections.Counter(end.failure.code for end in failed)),
            no_ops=len(no_ops),
            executions=sum(len(history.executions(trial)) for trial in trials),
            events=len(history.log),
            forgotten=len(self.forgotten),
            seconds=round(seconds, 1),
        )


def _runs(trials: int, no_ops: int) -> list[Asked]:
    """Those without a sandbox are spread evenly between the others."""
    real = [Asked(min(TRIALS_A_RUN, trials - at), "oracle") for at in range(0, trials, TRIALS_A_RUN)]
    nothing = [Asked(min(NO_OPS_A_RUN, no_ops - at), no_op.AGENT) for at in range(0, no_ops, NO_OPS_A_RUN)]
    placed = [((at + 0.5) / len(some), one) for some in (real, nothing) for at, one in enumerate(some)]
    return [one for _, one in sorted(placed, key=lambda one: one[0])]


def _told(step: Step) -> str:
    what = f"{step.action} {' and '.join(step.targets)}"
    return f"{what}, {step.away_seconds} s" if step.away_seconds else what


async def tasks_of(system: System, folder: Path) -> list[str]:
    """Tasks of different pace, built."""
    made: list[str] = []
    for name, agent, verify in (("chaos-quick", 0.0, 0.0), ("chaos-agent", 2.0, 0.0), ("chaos-verify", 0.5, 1.5)):
        revision = await system.api.built(write_pack(folder / name, agent_seconds=agent, verify_seconds=verify), name)
        assert revision["status"] == "ready", revision
        made.append(name)
    return made


@contextlib.asynccontextmanager
async def plant(folder: Path, shared_host: str, harness: Path) -> AsyncGenerator[System]:
    """A system for a chaos, with an engine of its own, below an existing folder with a short path."""
    engine = OwnEngine(folder / "engine")
    with engine.running(shared_host):
        async with System(folder, engine.host, harness, own_engine=engine, program=no_op.MODULE).running() as system:
            yield system


async def main(asked: argparse.Namespace) -> None:
    from app.local.baseimage import TEST_BASE, ensure_image
    from app.local.engine import ensure
    from app.settings import load

    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="seatrial-chaos-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o711)
    say(f"seed {asked.seed}, {asked.trials} trials, {asked.no_ops} no-ops, {asked.kills} kills; home {folder / 'home'}")
    for number, step in enumerate(
        itertools.islice(schedule(asked.seed, engine=True, restores=asked.restores), asked.kills), 1
    ):
        say(f"  step {number}: {step.after_seconds} s later {_told(step)}")
    shared = ensure(load())
    ensure_image(shared, TEST_BASE)
    async with plant(folder, shared.host, ROOT / ".seatrial" / "harness") as system:
        chaos = Chaos(system, await tasks_of(system, folder / "packs"), say, folder / "scratch")
        outcome = await chaos.run(
            asked.seed,
            trials=asked.trials,
            kills=asked.kills,
            no_ops=asked.no_ops,
            engine=True,
            restores=asked.restores,
        )
    text = msgspec.json.format(msgspec.json.encode(outcome)).decode()
    say(text)
    if asked.out:
        Path(asked.out).write_text(f"{text}\n")
    subprocess.run(["rm", "-rf", folder], check=True)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--trials", type=int, default=100, help="in a sandbox")
    parser.add_argument("--no-ops", type=int, default=0, help="without one")
    parser.add_argument("--kills", type=int, default=200, help="at least so many")
    parser.add_argument("--restores", action="store_true", help="the database is also set back to a backup")
    parser.add_argument("--out", default="", help="a file for the outcome")
    sys.exit(asyncio.run(main(parser.parse_args())))
