"""The connection is lost at every single point where somebody waits for it: each append is decided exactly once all the same.

A proxy stands before Postgres and cuts everything after the n-th piece that passed, in whichever direction; n grows until
a run needs fewer pieces. So each await of the connection's making, of the statement and of its answer is met, on both sides.
"""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncGenerator, Awaitable, Callable
from urllib.parse import urlsplit

from app.bus import leases, work
from app.eventlog.append import Appender
from app.eventlog.connect import LOST, connect
from app.eventlog.model import NewReservation, NewWork, Refusal
from app.eventlog.tail import follow
from tests.eventlog.samples import opened, unit, write

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
FAR = 1_000_000
"""More pieces than any run has."""
SECONDS = 60.0


class Proxy:
    """Passes bytes on, until `left` pieces have passed: then all connections are cut, once; later ones last."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        self.left = FAR
        self.passed = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user = self._target.netloc.rpartition("@")[0]
        try:
            yield self._target._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        finally:
            server.close()
            self._cut()

    def arm(self, after: int) -> None:
        self.left, self.passed = after, 0

    @property
    def has_cut(self) -> bool:
        return self.left == FAR

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target.port is not None
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
            self._writers |= {writer, far_writer}
            if self.left == 0:
                self._cut()
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
                self.passed += 1
                if self.passed == self.left:
                    self._cut()
                    return
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _cut(self) -> None:
        self.left = FAR
        for writer in self._writers:
            writer.close()
        self._writers.clear()


async def at_every_point(proxy: Proxy, scenario: Callable[[int], Awaitable[None]]) -> int:
    """Run it with a cut after no piece, after one, after two and so on. Returns at how many points it was cut."""
    for after in range(FAR):
        proxy.arm(after)
        async with asyncio.timeout(SECONDS):
            await scenario(after)
        if not proxy.has_cut:
            return after
    raise AssertionError("it never comes to an end")


async def test_an_append_is_decided_exactly_once_wherever_the_connection_is_lost(database: str) -> None:
    proxy, repeated = Proxy(database), 0
    async with proxy.listening() as url, opened(database, None) as owner:

        async def scenario(n: int) -> None:
            nonlocal repeated
            [made] = await write(owner, unit(f"work{n}", work=(NewWork(f"job{n}", "trial", due_at=LONG_AGO),)))
            assert made.accepted
            async with Appender(url) as appender:
                name, mine = NewReservation("name", f"{n}"), NewWork(f"job{n}", "trial", owner="wrk_1")
                units = [
                    unit(f"plain{n}", count=3),
                    unit(f"holder{n}", reservations=(name,)),
                    unit(f"asked{n}", idempotency_key=f"key{n}", request_hash=b"h", answer=b"a"),
                    unit(f"claim{n}", work_id=f"job{n}", lease_epoch=0, work=(mine,)),
                    unit(f"refused{n}", 7),
                ]
                *accepted, refused = await asyncio.gather(*(appender.append(one) for one in units))
                assert all(outcome.accepted for outcome in accepted)
                assert refused.refusal is Refusal.WRONG_VERSION
                repeated += any(outcome.repeated for outcome in accepted)
                assert (await appender.append(unit(f"plain{n}", 3))).accepted
            found = await owner.fetch(
                "select stream, count(*) as events, count(distinct event_id) as ids from eventlog.event"
                " where stream = any ($1) group by stream order by stream",
                [one.stream for one in units],
            )
            assert [tuple(row) for row in found] == [
                (f"asked{n}", 1, 1), (f"claim{n}", 1, 1), (f"holder{n}", 1, 1), (f"plain{n}", 4, 4),
            ]  # fmt: skip
            assert await owner.fetchval("select lease_epoch from eventlog.work where id = $1", f"job{n}") == 1

        points = await at_every_point(proxy, scenario)
    assert points > 10, "connecting alone takes that many"
    assert repeated, "a commit whose answer was lost is among the points"


async def test_a_follower_hears_each_event_once_wherever_its_connection_is_lost(database: str) -> None:
    proxy = Proxy(database)
    async with proxy.listening() as url, opened(database, None) as owner:

        async def scenario(n: int) -> None:
            before = await owner.fetchval("select coalesce(max(position), 0) from eventlog.event")
            wanted = [unit(f"told{n}_{number}", count=2) for number in range(3)]
            await write(owner, wanted[0])
            told: list[tuple[str, int]] = []
            async with contextlib.aclosing(follow(url, before)) as batches:
                async for batch in batches:
                    told += [(one.stream, one.version) for one in batch]
                    if len(told) == 6:
                        break
                    await write(owner, wanted[len(told) // 2])
            assert told == [(one.stream, version) for one in wanted for version in (1, 2)]

        assert await at_every_point(proxy, scenario) > 10


async def test_a_worker_knows_what_is_its_own_wherever_its_connection_is_lost(database: str) -> None:
    """Register, ask for work, beat: each may be asked again, and none changes an epoch."""
    proxy = Proxy(database)
    async with proxy.listening() as url, opened(database, None) as owner:

        async def scenario(n: int) -> None:
            job, worker = f"job{n}", f"wrk_{n}"
            await write(owner, unit(f"made{n}", work=(NewWork(job, f"kind{n}", due_at=LONG_AGO),)))

            async def ask() -> list[work.Due]:
                connection = await connect(url)
                try:
                    await leases.register(connection, worker, "trial", 1)
                    due = await work.due(connection, f"kind{n}", 5)
                    assert (await leases.beat(connection, worker)).leases == {}
                    return due
                finally:
                    connection.terminate()

            [due] = await until_answered(ask)
            assert (due.work_id, due.epoch) == (job, 0)
            mine = (NewWork(job, f"kind{n}", owner=worker),)
            [claimed] = await write(owner, unit(f"claim{n}", work_id=job, lease_epoch=0, work=mine))
            assert claimed.accepted

            async def beat() -> leases.Beat:
                connection = await connect(url)
                try:
                    return await leases.beat(connection, worker)
                finally:
                    connection.terminate()

            answer = await until_answered(beat)
            assert answer.known
            assert answer.leases == {job: 1}

        assert await at_every_point(proxy, scenario) > 10


async def until_answered[T](question: Callable[[], Awaitable[T]]) -> T:
    """As the loops of the workers do."""
    while True:
        try:
            return await question()
        except LOST:
            await asyncio.sleep(0.01)
