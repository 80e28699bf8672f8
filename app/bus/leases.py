"""Who works, and that they live: one beat row a process, and the sweeper that tells whose leases have run out.

A lease is owned until its work row says otherwise. The sweeper never ends one by itself: its caller appends an event,
guarded by the epoch, that sets the owner to nobody. So a late heartbeat revives whatever nobody took, and whoever lost
his lease is refused everywhere by his epoch.
"""

import msgspec

from app.bus.statements import statement
from app.clock import Clock
from app.eventlog.connect import Connection, Pool


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    known: bool
    """False: the row was taken away (the process was silent for long). Register again; `leases` is still the truth."""
    leases: dict[str, int]
    """Work id to epoch: all that this worker owns. What it runs and is not in here, with that epoch, is lost: stop it."""
    cancelled: frozenset[str]
    """The owned work that shall be stopped."""


class Lost(msgspec.Struct, frozen=True):
    """A lease whose owner stood still for the whole lease time."""

    work_id: str
    kind: str
    team: str
    owner: str
    epoch: int


async def register(pool: Pool | Connection, worker_id: str, kind: str, slots: int) -> None:
    """Say that this process works. `worker_id` is new for every start of a process; calling again does no harm."""
    await pool.execute(statement("register_worker"), worker_id, kind, slots)


async def beat(pool: Pool | Connection, worker_id: str) -> Beat:
    """The heartbeat: say that this process lives, and hear what it owns."""
    rows = await pool.fetch(statement("beat_worker"), worker_id)
    owned = [row for row in rows if row["work_id"] is not None]
    return Beat(
        known=rows[0]["known"],
        leases={row["work_id"]: row["epoch"] for row in owned},
        cancelled=frozenset(row["work_id"] for row in owned if row["cancel"]),
    )


async def retire(pool: Pool | Connection, worker_id: str) -> None:
    """The last word of a process that has given back its leases."""
    await pool.execute(statement("retire_worker"), worker_id)


class _Seen(msgspec.Struct, frozen=True):
    beat: int | None
    since: float
    """By the sweeper's monotonic clock: this beat was first seen before then."""


class Sweeper:
    """Watches beats. Ask `expired` every few seconds; any number of sweepers may watch.

    A lease has run out when its owner's beat was seen to stand still for `lease_seconds` of this process's own monotonic
    clock, without a pause between two looks longer than `pause_seconds`: after a pause (Postgres away, this process
    suspended) nobody knows whether the owner could beat, and everybody gets the full time again.
    """

    def __init__(self, clock: Clock, lease_seconds: float, *, pause_seconds: float | None = None) -> None:
        self._clock = clock
        self._lease = lease_seconds
        self._pause = lease_seconds / 2 if pause_seconds is None else pause_seconds
        self._seen: dict[str, _Seen] = {}
        self._last_look = float("-inf")

    async def expired(self, pool: Pool | Connection) -> list[Lost]:
        """The leases that have run out, as of now. Raises what the database raises: then this look did not happen."""
        before = self._clock.monotonic()
        leases = await pool.fetch(statement("read_leases"))
        workers = await pool.fetch(statement("read_beats"))
        after = self._clock.monotonic()
        beats: dict[str, int | None] = {row["owner"]: row["beat"] for row in leases}
        beats |= {row["id"]: row["beat"] for row in workers}
        still = self._look(beats, before, after)
        for worker in still - {row["owner"] for row in leases}:
            if (last := beats[worker]) is not None:
                await pool.execute(statement("forget_worker"), worker, last)
        return [
            Lost(row["work_id"], row["kind"], row["team"], row["owner"], row["epoch"])
            for row in leases
            if row["owner"] in still
        ]

    def _look(self, beats: dict[str, int | None], before: float, after: float) -> frozenset[str]:
        """Who has stood still for the lease time. Time counts from the end of the look that saw a beat first to the
        start of this one, so that a slow look never makes a lease shorter."""
        if before - self._last_look > self._pause:
            self._seen.clear()
        self._last_look = after
        seen = {
            worker: old if (old := self._seen.get(worker)) is not None and old.beat == number else _Seen(number, after)
            for worker, number in beats.items()
        }
        self._seen = seen
        return frozenset(worker for worker, mark in seen.items() if before - mark.since >= self._lease)
