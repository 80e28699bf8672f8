"""The share of trial slots that are busy while 200 trials of one second wait for 4 slots.

A slot is busy from trial.started to the trial's end, by the times in the log; counted from the first start to the last one,
the time in which there was always something to start.
"""

from app.domain.registry import decode_meta
from tests.benchmarks.figures import Figure, Goal, figure
from tests.benchmarks.ground import Ground
from tests.benchmarks.runs import complete, scored
from tests.journeys.packs import write_pack

TRIALS = 200
SLOTS = 4
ENDS = frozenset({"trial.scored", "trial.errored", "trial.cancelled"})


async def measure(ground: Ground) -> list[Figure]:
    system, trials = await ground.system(), ground.many(TRIALS, 16)
    pack = write_pack(ground.place("packs") / "second", agent_seconds=1.0)
    assert (await system.api.built(pack, "second"))["status"] == "ready"
    _, runs = await complete(system.api, "second", trials)
    assert scored(runs) == trials, runs
    ours = {run["id"] for run in runs}
    started: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in await system.events():
        if decode_meta(event.meta).correlation in ours:
            if event.type == "trial.started":
                started[event.stream] = event.recorded_at.timestamp()
            elif event.type in ENDS:
                ended[event.stream] = event.recorded_at.timestamp()
    first, last = min(started.values()), max(started.values())
    busy = sum(min(ended[trial], last) - min(begun, last) for trial, begun in started.items())
    each = sum(ended[trial] - begun for trial, begun in started.items()) / trials
    ground.say(f"{trials} trials, {last - first:.1f} s from the first start to the last, {each:.2f} s each")
    share = 100 * busy / (SLOTS * (last - first))
    return [
        figure(
            f"slots busy while {trials} one-second trials wait, {SLOTS} slots",
            share,
            "%",
            Goal("value", 95, least=True),
        )
    ]
