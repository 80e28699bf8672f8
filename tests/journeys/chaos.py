"""A random schedule of kills and freezes while runs go on: `python -m tests.journeys.chaos --seed 7 --trials 100 --kills 200`.

What is done, to whom and after which pause follows from the seed alone; when a step finds nobody (a harness child between
two trials) it is told and does not count. Afterwards everything must hold (holds.py), and a trial that has no score must
say that the platform is at fault.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from app.domain.events import TrialErrored, TrialScored
from app.domain.failures import CODES
from tests.journeys.history import History
from tests.journeys.holds import everything_holds
from tests.journeys.packs import write_pack
from tests.journeys.system import GROUPS, HARNESS, LEASE_SECONDS, ROOT, SERVERS, NotThere, System

MACHINE = "machine"
TRIALS_A_RUN = 5
FREEZABLE = ("dispatcher", "foreman", "relay", "projector", "builder", "postgres", "nats")


class Step(msgspec.Struct, frozen=True):
    after_seconds: float
    action: Literal["kill", "freeze"]
    targets: tuple[str, ...]
    away_seconds: float
    """How long nobody starts again what was killed, or how long it is frozen."""


class Outcome(msgspec.Struct, frozen=True):
    kills: dict[str, int]
    freezes: dict[str, int]
    trials: int
    scored: int
    errored: dict[str, int]
    """By code."""
    executions: int
    seconds: float


def schedule(seed: int) -> Iterator[Step]:
    """Without end. Most steps kill one process; some take two at once, the whole machine, or freeze one beyond its lease."""
    chance = random.Random(seed)
    while True:
        kind = chance.random()
        after = round(chance.expovariate(1 / 1.5), 2)
        if kind < 0.12:
            target = chance.choice(FREEZABLE)
            yield Step(after, "freeze", (target,), round(chance.uniform(0.2, 2.2) * LEASE_SECONDS, 2))
        elif kind < 0.15:
            yield Step(after, "kill", (MACHINE,), round(chance.uniform(0, LEASE_SECONDS), 2))
        else:
            # Trials pass through the harness and the dispatcher: they get their share.
            everybody = (*GROUPS, *SERVERS, *HARNESS, "dispatcher", "harness child")
            count = 2 if kind > 0.92 else 1
            away = 0.0 if chance.random() < 0.7 else round(chance.uniform(0, 2.5) * LEASE_SECONDS, 2)
            yield Step(after, "kill", tuple(dict.fromkeys(chance.sample(everybody, count))), away)


class Chaos:
    def __init__(self, system: System, tasks: list[str], say: Callable[[str], None]) -> None:
        self.system, self.tasks, self.say = system, tasks, say
        self.kills: collections.Counter[str] = collections.Counter()
        self.freezes: collections.Counter[str] = collections.Counter()
        self.runs: list[str] = []

    async def run(self, seed: int, *, trials: int, kills: int) -> Outcome:
        """Start runs of so many trials in all while at least so many processes are killed; then everything must hold."""
        began = time.monotonic()
        started = 0
        asking: list[asyncio.Task[None]] = []
        for number, step in enumerate(schedule(seed), 1):
            while started < trials and started <= trials * self.kills.total() / kills:
                size = min(TRIALS_A_RUN, trials - started)
                asking.append(asyncio.create_task(self._start(len(asking), size)))
                started += size
            if self.kills.total() >= kills and started >= trials:
                break
            await asyncio.sleep(step.after_seconds)
            self.say(f"{time.monotonic() - began:7.2f} s  step {number}: {_told(step)}{await self._do(step)}")
        await asyncio.gather(*asking)
        history = await everything_holds(self.system)
        return self._outcome(history, time.monotonic() - began)

    async def _start(self, number: int, size: int) -> None:
        task = self.tasks[number % len(self.tasks)]
        self.runs.append((await self.system.api.start([task], trials=size))["id"])

    async def _do(self, step: Step) -> str:
        if step.targets == (MACHINE,):
            await self.system.die()
            self.kills[MACHINE] += 1
            await asyncio.sleep(step.away_seconds)
            await self.system.start()
            return ""
        if step.action == "freeze":
            with self.system.frozen(step.targets[0]) as pids:
                if not pids:
                    return "  (not there)"
                self.freezes[step.targets[0]] += 1
                await asyncio.sleep(step.away_seconds)
            return ""
        missed: list[str] = []
        with self.system.nobody_restarts() if step.away_seconds else contextlib.nullcontext():
            for target in step.targets:
                try:
                    self.system.kill(target)
                    self.kills[target] += 1
                except NotThere:
                    missed.append(target)
            await asyncio.sleep(step.away_seconds)
        return f"  ({', '.join(missed)} not there)" if missed else ""

    def _outcome(self, history: History, seconds: float) -> Outcome:
        trials = [trial for run in self.runs for trial in history.trials_of_run(run)]
        ends = [history.end(trial) for trial in trials]
        errored = [end for end in ends if isinstance(end, TrialErrored)]
        blamed = [end for end in errored if end.failure.fault != "platform"]
        assert not blamed, f"not the platform's fault, it says: {blamed}"
        early = [end for end in errored if end.executions < CODES[end.failure.code].limit]
        assert not early, f"given up before their last try: {early}"
        for end in ends:
            assert not isinstance(end, TrialScored) or end.reward == 1.0, end
        return Outcome(
            kills=dict(self.kills),
            freezes=dict(self.freezes),
            trials=len(ends),
            scored=sum(isinstance(end, TrialScored) for end in ends),
            errored=dict(collections.Counter(end.failure.code for end in errored)),
            executions=sum(len(history.executions(trial)) for trial in trials),
            seconds=round(seconds, 1),
        )


def _told(step: Step) -> str:
    what = f"{step.action} {' and '.join(step.targets)}"
    return f"{what}, away for {step.away_seconds} s" if step.away_seconds else what


async def tasks_of(system: System, folder: Path) -> list[str]:
    """Tasks of different pace, built."""
    made: list[str] = []
    for name, agent, verify in (("chaos-quick", 0.0, 0.0), ("chaos-agent", 2.0, 0.0), ("chaos-verify", 0.5, 1.5)):
        revision = await system.api.built(write_pack(folder / name, agent_seconds=agent, verify_seconds=verify), name)
        assert revision["status"] == "ready", revision
        made.append(name)
    return made


async def main(seed: int, trials: int, kills: int) -> None:
    from app.local.engine import ensure
    from app.settings import load

    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="seatrial-chaos-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o711)
    say(f"seed {seed}, {trials} trials, {kills} kills; home {folder / 'home'}")
    for number, step in enumerate(itertools.islice(schedule(seed), kills), 1):
        say(f"  step {number}: {step.after_seconds} s later {_told(step)}")
    system = System(folder, ensure(load()).host, ROOT / ".seatrial" / "harness")
    async with system.running():
        chaos = Chaos(system, await tasks_of(system, folder), say)
        outcome = await chaos.run(seed, trials=trials, kills=kills)
        say(msgspec.json.format(msgspec.json.encode(outcome)).decode())


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--kills", type=int, default=200)
    asked = parser.parse_args()
    sys.exit(asyncio.run(main(asked.seed, asked.trials, asked.kills)))
