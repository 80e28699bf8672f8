"""How groups are made: bounded, in order, and never two units that share a name."""

import asyncio
import collections

from hypothesis import given
from hypothesis import strategies as st

from app.eventlog.append import GROUP_BYTES, GROUP_UNITS, Queued, take_group
from app.eventlog.model import NewReservation, NewWork, Outcome
from app.eventlog.units import names
from tests.eventlog.samples import unit

UNITS = st.builds(
    lambda stream, reserved, released, key, work: unit(
        f"s{stream}",
        reservations=tuple(NewReservation("n", str(n)) for n in reserved),
        releases=tuple(NewReservation("n", str(n)) for n in released - reserved),
        idempotency_key=key,
        request_hash=None if key is None else b"h",
        work=tuple(NewWork(str(n), "trial") for n in work),
    ),
    st.integers(1, 30),
    st.sets(st.integers(1, 9), max_size=2),
    st.sets(st.integers(1, 9), max_size=2),
    st.sampled_from([None, None, "k1", "k2"]),
    st.sets(st.integers(1, 9), max_size=2),
)


@given(st.lists(st.tuples(UNITS, st.integers(1, GROUP_BYTES), st.booleans()), max_size=40))
def test_groups_keep_the_order_of_units_that_share_a_name(drawn: list[tuple]) -> None:
    loop = asyncio.new_event_loop()
    try:
        queue: collections.deque[Queued] = collections.deque()
        for one, size, cancelled in drawn:
            outcome: asyncio.Future[Outcome] = loop.create_future()
            if cancelled:
                outcome.cancel()
            queue.append(Queued(one, names(one), size, 0.0, outcome))
        waiting = [queued for queued in queue if not queued.outcome.done()]
        order = {id(queued): number for number, queued in enumerate(waiting)}
        group_of: dict[int, int] = {}
        number = 0
        while queue:
            group = take_group(queue)
            if not group:
                assert not queue, "an empty group only when nobody waits any more"
                break
            assert len(group) <= GROUP_UNITS
            assert len(group) == 1 or sum(queued.size_bytes for queued in group) <= GROUP_BYTES
            assert sum(len(queued.names) for queued in group) == len(set().union(*(q.names for q in group)))
            group_of |= {order[id(queued)]: number for queued in group}
            number += 1
        assert sorted(group_of) == list(range(len(waiting))), "each unit in one group"
        for later, queued in enumerate(waiting):
            for earlier in range(later):
                if not queued.names.isdisjoint(waiting[earlier].names):
                    assert group_of[earlier] < group_of[later]
    finally:
        loop.close()
