"""The foreman: the only one that decides across streams.

    run.requested       -> evaluation.created and trial.queued, a bounded number ahead; trial.adopted, where a retry finds a score
    run.cancel_requested -> every open trial is cancelled or told to stop; nothing more is expanded
    the last trial ended -> evaluation.completed, and evidence is owed
    the last evaluation  -> run.completed

It folds the log into its tally (schema foreman), and appends what the tally calls for. Both are one transaction each:
fold moves the checkpoint with the tally, advance moves the tally with the events. Child ids derive from parent and
ordinal, so "version 0 is taken" means "made already", and a crash between the two costs nothing.
"""

import asyncio
from collections.abc import Sequence
from importlib import metadata

import msgspec
import structlog

from app import digests, ids
from app.boot import House, open_house
from app.bus.cancels import send_cancel
from app.commands.trials import epoch_of, telling
from app.domain import evaluation, evidence, policy, run, trial
from app.domain.events import (
    Installation,
    RunCancelRequested,
    RunRequested,
    Tally,
    TrialAdopted,
    TrialCancelled,
    TrialErrored,
    TrialScored,
)
from app.domain.refusal import Refused
from app.domain.registry import Meta, decode
from app.domain.run import Roster
from app.eventlog.append import append_direct, ring
from app.eventlog.connect import Connection
from app.eventlog.deciding import Contended
from app.eventlog.drafts import unit_of
from app.eventlog.model import NewTimer, NewWork, Recorded, Refusal, Unit
from app.eventlog.read import read_stream, read_streams
from app.settings import Settings
from workers.expansion import Rejected, children, earlier_trials, wanted
from workers.follower import Follower
from workers.looper import Bell, repeat, together, until
from workers.statements import statement
from workers.streams import EVALUATION, RUN, TRIAL, LeaseLost, act, fold

log = structlog.get_logger()

NAME = "foreman"
TICK_SECONDS = 5.0
REJECTED_SECONDS = 0.05
CANCEL_TRIES, CANCELS_AT_ONCE = 8, 64
ROSTER = msgspec.json.Decoder(Roster)
FOLLOWED = trial.ENDS | {RunRequested.type, RunCancelRequested.type}


async def main(settings: Settings, stop: asyncio.Event) -> None:
    async with open_house(settings) as house:
        await Foreman(house).run(stop)


class Foreman:
    def __init__(self, house: House) -> None:
        self.house = house
        self.bell = Bell()
        self.follower = Follower(house, NAME, self.fold, done=self.bell.ring)
        self._roster = ("", Roster(()))
        """The one read last, by its digest: a large run is expanded in many steps, each of which needs a few of its members."""

    async def run(self, stop: asyncio.Event) -> None:
        await together(
            stop,
            follow=repeat("foreman.follow", stop, self.follower.follow),
            advance=repeat("foreman.advance", stop, self.turn),
        )

    # ------------------------------------------------------------ fold: the log into the tally

    async def fold(self, connection: Connection, batch: list[Recorded]) -> None:
        """The follower calls it inside the batch's transaction. Folding an event twice changes nothing."""
        ends: list[tuple[str, str, str | None]] = []
        for one in batch:
            if one.type not in FOLLOWED:
                continue
            match decode(one.type, one.schema_version, one.data):
                case RunRequested() as event:
                    await connection.execute(
                        statement("open_run"), one.stream, one.team, event.evaluations, event.trials
                    )
                case RunCancelRequested():
                    await connection.execute(statement("cancel_run"), one.stream)
                case TrialAdopted() | TrialScored():
                    ends.append((one.stream, "scored", None))
                case TrialErrored() as event:
                    ends.append((one.stream, "errored", event.failure.fault.value))
                case TrialCancelled():
                    ends.append((one.stream, "cancelled", None))
                case _:
                    pass
        if ends:
            await connection.execute(statement("count_ends"), *(list(column) for column in zip(*ends, strict=True)))

    # ------------------------------------------------------------ advance: the tally into events

    async def turn(self, stop: asyncio.Event) -> None:
        busy = True
        while busy and not stop.is_set():
            try:
                busy = await self.complete_evaluations() or await self.complete_run() or await self.expand_run()
                busy = await self.cancel_trials() or busy
            except Rejected as rejected:
                log.info("somebody was faster; looking again", refusal=str(rejected))
                await until(stop, REJECTED_SECONDS)
        await self.bell.wait(stop, TICK_SECONDS)

    async def complete_evaluations(self) -> bool:
        """evaluation.completed for those whose trials have all ended, and the work of sealing their evidence."""
        async with self.house.pool.acquire() as connection:
            async with connection.transaction():
                rows = await connection.fetch(statement("complete_evaluations"), policy.EXPANSION_UNITS // 2)
                if not rows:
                    return False
                streams = await read_streams(connection, [row["id"] for row in rows])
                units: list[Unit] = []
                for row in rows:
                    tally = Tally(
                        trials=row["trials"],
                        scored=row["scored"],
                        cancelled=row["cancelled"],
                        errored=msgspec.json.decode(row["errored"], type=dict[str, int]),
                    )
                    recorded = streams[row["id"]]
                    drafts = wanted(evaluation.decide(fold(EVALUATION, recorded), evaluation.Complete(tally=tally)))
                    meta = Meta(actor=NAME, correlation=row["run_id"])
                    if drafts:
                        units.append(unit_of("evaluation", row["id"], row["team"], len(recorded), drafts, meta))
                    evidence_id = ids.derive("evidence", row["id"], 1)
                    owe = evidence.Owe(
                        evaluation_id=row["id"], run_id=row["run_id"], platform=_installation(self.house)
                    )
                    owed = evidence.decide(None, owe, self.house.clock.now())
                    work = (NewWork(id=evidence_id, kind="evidence", due_at=row["now"]),)
                    units.append(unit_of("evidence", evidence_id, row["team"], 0, wanted(owed), meta, work=work))
                await self._append(connection, units, made_already=True)
            await ring(connection)
        return True

    async def complete_run(self) -> bool:
        """run.completed for one run whose evaluations have all ended."""
        async with self.house.pool.acquire() as connection:
            async with connection.transaction():
                row = await connection.fetchrow(statement("complete_run"))
                if row is None:
                    return False
                recorded = await read_stream(connection, row["id"])
                tally = Tally(
                    trials=row["evaluations"] * row["trials"],
                    scored=row["scored"],
                    # Evaluations that a cancelled run never came to are cancelled, so that coverage shows them.
                    cancelled=row["cancelled"] + (row["evaluations"] - row["expanded"]) * row["trials"],
                    errored=msgspec.json.decode(row["errored"], type=dict[str, int]),
                )
                complete = run.Complete(tally=tally, cancelled=tally.cancelled > 0)
                off = (NewTimer(key=run.deadline_timer(row["id"]), due_at=None),)
                if drafts := wanted(run.decide(fold(RUN, recorded), complete)):
                    meta = Meta(actor=NAME, causation=str(recorded[-1].event_id), correlation=row["id"])
                    await self._append(
                        connection, [unit_of("run", row["id"], row["team"], len(recorded), drafts, meta, timers=off)]
                    )
            await ring(connection)
        return True

    async def expand_run(self) -> bool:
        """Make the next evaluations and trials of one run, at most EXPANSION_UNITS streams."""
        async with self.house.pool.acquire() as connection:
            async with connection.transaction():
                row = await connection.fetchrow(statement("next_expansion"), policy.OPEN_TRIALS_AHEAD)
                if row is None:
                    return False
                recorded = await read_stream(connection, row["id"])
                state = fold(RUN, recorded)
                if state is None or state.status is not run.Status.REQUESTED:
                    await connection.execute(statement("cancel_run"), row["id"])
                    return True
                members = (await self._roster_of(connection, state.roster)).members
                count = max(1, policy.EXPANSION_UNITS // (state.trials + 1))
                first = row["expanded"] + 1
                ordinals = range(first, min(state.evaluations, row["expanded"] + count) + 1)
                meta = Meta(actor=NAME, causation=str(recorded[0].event_id), correlation=row["id"])
                earlier, now = await earlier_trials(connection, state, ordinals), self.house.clock.now()
                units: list[Unit] = []
                for ordinal in ordinals:
                    units += children(row["id"], row["team"], state, ordinal, members[ordinal - 1], earlier, meta, now)
                evaluations = [unit.stream for unit in units if unit.category == "evaluation"]
                trials = [unit.stream for unit in units if unit.category == "trial"]
                owners = [evaluation_id for evaluation_id in evaluations for _ in range(state.trials)]
                await connection.execute(
                    statement("record_expansion"), row["id"], evaluations, state.trials, trials, owners
                )
                await self._append(connection, units, made_already=True)
            await ring(connection)
        return True

    async def _roster_of(self, connection: Connection, digest: str) -> Roster:
        if self._roster[0] != digest:
            encoded = await connection.fetchval(statement("read_roster"), digests.bytes_of(digest))
            self._roster = (digest, ROSTER.decode(encoded))
        return self._roster[1]

    async def cancel_trials(self) -> bool:
        """Tell every open trial of one cancelled run. Telling one twice changes nothing."""
        async with self.house.pool.acquire() as connection:
            row = await connection.fetchrow(statement("next_cancellation"))
        if row is None:
            return False
        limit = asyncio.Semaphore(CANCELS_AT_ONCE)

        async def tell(trial_id: str) -> None:
            async with limit:
                await cancel_trial(self.house, trial_id, row["team"], correlation=row["id"])

        # All are told before the first failure is raised: a group of failures would be none that a loop knows to wait for.
        for outcome in await asyncio.gather(*map(tell, row["open"]), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        async with self.house.pool.acquire() as connection:
            await connection.execute(statement("record_cancellation"), row["id"])
        return True

    async def _append(self, connection: Connection, units: Sequence[Unit], *, made_already: bool = False) -> None:
        """Append as the last statement of the transaction. `made_already`: a wrong version is what an earlier try left."""
        for outcome in await append_direct(connection, units, self.house.incarnation):
            if outcome.refusal is None or (made_already and outcome.refusal is Refusal.WRONG_VERSION):
                continue
            raise Rejected(outcome.refusal)


async def cancel_trial(house: House, trial_id: str, team: str, *, correlation: str) -> None:
    """End a trial that waits; tell the worker of one that runs, by its work row and by a message."""
    for _ in range(CANCEL_TRIES):
        epoch = await epoch_of(house.pool, trial_id)
        try:
            told = await act(
                house, TRIAL, trial_id, team, trial.Cancel(), actor=NAME, correlation=correlation,
                extras=lambda drafts, epoch=epoch: telling(trial_id, drafts, epoch),
            )  # fmt: skip
        except LeaseLost:
            continue  # claimed between the two reads
        if not isinstance(told, Refused) and told.state is not None and not told.state.status.ended:
            await send_cancel(house.bus, trial_id)
        return
    raise Contended(trial_id)


def _installation(house: House) -> Installation:
    return Installation(
        version=metadata.version("seatrial"),
        instance=house.settings.instance,
        incarnation=str(house.incarnation),
    )
