"""A lease ends when its owner was seen to stand still for the whole lease time, and never sooner."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from app.bus.leases import Lost, Sweeper, beat, register, retire
from app.clock import SYSTEM
from app.eventlog.connect import Session
from app.eventlog.model import NewWork, Refusal
from tests.eventlog.samples import TEAM, opened, rows, unit, write

NOW = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
LEASE = 30.0


class SetClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime.datetime:
        return SYSTEM.now()

    def monotonic(self) -> float:
        return self.seconds


async def claimed(connection: Session, work_id: str, owner: str, epoch: int = 0) -> int:
    """Make the work and claim it; the new epoch."""
    await write(connection, unit(f"{work_id}-made", work=(NewWork(work_id, "trial", due_at=NOW),)))
    claim = unit(
        f"{work_id}-claim-{epoch}", work_id=work_id, lease_epoch=epoch, work=(NewWork(work_id, "trial", owner=owner),)
    )
    [outcome] = await write(connection, claim)
    assert outcome.accepted
    return epoch + 1


async def pass_time(
    sweeper: Sweeper, clock: SetClock, connection: Session, seconds: float, *, step: float = 5
) -> list[Lost]:
    """Look every `step` seconds for so long; what the last look found."""
    lost: list[Lost] = []
    for _ in range(round(seconds / step)):
        clock.seconds += step
        lost = await sweeper.expired(connection)
    return lost


async def test_a_heartbeat_answers_with_what_is_owned_and_what_shall_stop(database: str) -> None:
    async with opened(database) as connection:
        await register(connection, "wrk_1", "trial", 4)
        await claimed(connection, "trl_1", "wrk_1")
        await claimed(connection, "trl_2", "wrk_1")
        await claimed(connection, "trl_3", "wrk_2")
        await write(connection, unit("cancel", work=(NewWork("trl_2", "trial", cancel=True),)))
        answer = await beat(connection, "wrk_1")
        assert (answer.known, answer.leases, answer.cancelled) == (True, {"trl_1": 1, "trl_2": 1}, frozenset({"trl_2"}))
        before = await rows(database, "select beat from eventlog.worker")
        await beat(connection, "wrk_1")
        after = await rows(database, "select beat, slots, kind from eventlog.worker")
        assert (after[0]["beat"], after[0]["slots"], after[0]["kind"]) == (before[0]["beat"] + 1, 4, "trial")
        await retire(connection, "wrk_1")
        gone = await beat(connection, "wrk_1")
        assert (gone.known, gone.leases) == (False, {"trl_1": 1, "trl_2": 1}), "the leases are the truth"
        await register(connection, "wrk_1", "trial", 4)
        assert (await beat(connection, "wrk_1")).known
        assert (await beat(connection, "wrk_3")).leases == {}


async def test_who_beats_keeps_his_lease_and_who_stands_still_loses_it(database: str) -> None:
    clock = SetClock()
    sweeper = Sweeper(clock, LEASE)
    async with opened(database) as connection:
        for worker in ("wrk_live", "wrk_dead"):
            await register(connection, worker, "trial", 1)
        await claimed(connection, "trl_live", "wrk_live")
        epoch = await claimed(connection, "trl_dead", "wrk_dead")
        await claimed(connection, "trl_unknown", "wrk_unknown")
        assert await sweeper.expired(connection) == []
        for _ in range(5):
            assert await pass_time(sweeper, clock, connection, 5) == []
            await beat(connection, "wrk_live")
        lost = await pass_time(sweeper, clock, connection, 5)
        assert sorted(lost, key=lambda one: one.work_id) == [
            Lost("trl_dead", "trial", TEAM, "wrk_dead", epoch),
            Lost("trl_unknown", "trial", TEAM, "wrk_unknown", 1),
        ]


async def test_a_late_heartbeat_revives_what_nobody_took(database: str) -> None:
    clock = SetClock()
    sweeper = Sweeper(clock, LEASE)
    async with opened(database) as connection:
        await register(connection, "wrk_1", "trial", 1)
        await claimed(connection, "trl_1", "wrk_1")
        await sweeper.expired(connection)
        assert len(await pass_time(sweeper, clock, connection, LEASE)) == 1
        answer = await beat(connection, "wrk_1")
        assert answer.leases == {"trl_1": 1}
        assert await pass_time(sweeper, clock, connection, LEASE) == []


async def test_a_stale_epoch_is_refused_and_the_owner_hears_of_it(database: str) -> None:
    async with opened(database) as connection:
        await register(connection, "wrk_1", "trial", 1)
        epoch = await claimed(connection, "trl_1", "wrk_1")
        [ended] = await write(
            connection,
            unit("end", work_id="trl_1", lease_epoch=epoch, work=(NewWork("trl_1", "trial", due_at=NOW),)),
        )
        assert ended.accepted
        assert (await beat(connection, "wrk_1")).leases == {}
        [refused] = await write(connection, unit("late", work_id="trl_1", lease_epoch=epoch))
        assert refused.refusal is Refusal.STALE_LEASE


async def test_a_pause_of_the_sweeper_gives_everybody_the_full_time_again(database: str) -> None:
    """Postgres was away, or this process slept: nobody can tell who could beat."""
    clock = SetClock()
    sweeper = Sweeper(clock, LEASE)
    async with opened(database) as connection:
        await claimed(connection, "trl_1", "wrk_1")
        await sweeper.expired(connection)
        assert await pass_time(sweeper, clock, connection, 25) == []
        clock.seconds += 60
        assert await sweeper.expired(connection) == []
        assert await pass_time(sweeper, clock, connection, 25) == []
        assert len(await pass_time(sweeper, clock, connection, 5)) == 1


async def test_a_process_that_ended_without_a_word_is_forgotten_once_it_owns_nothing(database: str) -> None:
    clock = SetClock()
    sweeper = Sweeper(clock, LEASE)
    async with opened(database) as connection:
        for worker in ("wrk_idle", "wrk_owns", "wrk_live"):
            await register(connection, worker, "trial", 1)
        await claimed(connection, "trl_1", "wrk_owns")
        await sweeper.expired(connection)
        for _ in range(6):
            await beat(connection, "wrk_live")
            await pass_time(sweeper, clock, connection, 5)
        assert [row["id"] for row in await rows(database, "select id from eventlog.worker order by id")] == [
            "wrk_live",
            "wrk_owns",
        ]


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 20),  # from the end of a look to the next
            st.floats(0, 10),  # how long a look takes
            st.sets(st.sampled_from(["a", "b", "c"])),  # who has beaten meanwhile
        ),
        max_size=40,
    )
)
def test_whatever_the_looks_nobody_is_lost_who_was_not_watched_standing_still(
    looks: list[tuple[float, float, set[str]]],
) -> None:
    """Against the plain rule: the last change was seen a lease time before this look began, and no pause was too long."""
    sweeper = Sweeper(SetClock(), LEASE, pause_seconds=15)
    beats = dict.fromkeys("abc", 0)
    seen: dict[str, tuple[int, float]] = {}
    time, last = 0.0, float("-inf")
    for rest, takes, beaten in looks:
        before = time + rest
        for worker in beaten:
            beats[worker] += 1
        time = before + takes
        if before - last > 15:
            seen.clear()
        last = time
        for worker, number in beats.items():
            if worker not in seen or seen[worker][0] != number:
                seen[worker] = (number, time)
        still = sweeper._look(dict(beats), before, time)  # pyright: ignore[reportPrivateUsage]
        assert still == {worker for worker, (_, since) in seen.items() if before - since >= LEASE}
