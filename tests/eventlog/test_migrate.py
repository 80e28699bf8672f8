"""Migrations: each exactly once, whole or not at all, and never another text under an applied name."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.eventlog.migrate import (
    LOCK,
    MigrationChanged,
    MigrationFailed,
    SchemaNewer,
    folder,
    load,
    migrate,
    pending,
)
from app.local.postgres import Postgres
from tests.eventlog.samples import opened, rows

_numbers = itertools.count(1)


@pytest.fixture
async def empty(postgres: Postgres) -> AsyncIterator[str]:
    """The URL of a database without any schema."""
    name = f"empty_{next(_numbers)}"
    async with opened(postgres.url, None) as server:
        await server.execute(f"create database {name}")
        yield urlsplit(postgres.url)._replace(path=f"/{name}").geturl()
        await server.execute(f"drop database {name} with (force)")


def write(source: Path, **files: str) -> Path:
    source.mkdir(exist_ok=True)
    for name, text in files.items():
        (source / f"{name.removeprefix('m')}.sql").write_text(text)
    return source


async def ledger(url: str) -> list[str]:
    return [row["name"] for row in await rows(url, "select name from migrations.applied order by applied_at")]


async def test_the_real_migrations_apply_once(empty: str) -> None:
    names = [migration.name for migration in load(folder())]
    assert await pending(empty) == names
    await migrate(empty)
    assert await pending(empty) == []
    assert await ledger(empty) == names
    before = await rows(empty, "select * from migrations.applied")
    await migrate(empty)
    assert await rows(empty, "select * from migrations.applied") == before


async def test_a_changed_file_that_was_applied_is_refused_by_its_name(empty: str, tmp_path: Path) -> None:
    source = write(tmp_path / "m", m0001_one="create table one ()", m0002_two="create table two ()")
    await migrate(empty, source=source)
    write(source, m0002_two="create table two (n integer)", m0003_three="create table three ()")
    for act in (migrate, pending):
        with pytest.raises(MigrationChanged, match=r"0002_two\.sql"):
            await act(empty, source=source)
    assert await ledger(empty) == ["0001_one.sql", "0002_two.sql"], "nothing was applied"


async def test_a_database_of_a_newer_program_is_refused(empty: str, tmp_path: Path) -> None:
    source = write(tmp_path / "m", m0001_one="create table one ()", m0002_two="create table two ()")
    await migrate(empty, source=source)
    (source / "0002_two.sql").unlink()
    for act in (migrate, pending):
        with pytest.raises(SchemaNewer, match=r"0002_two\.sql"):
            await act(empty, source=source)


async def test_a_file_that_fails_leaves_nothing_and_those_before_it_stay(empty: str, tmp_path: Path) -> None:
    source = write(
        tmp_path / "m",
        m0001_one="create table one ()",
        m0002_two="create table two (); select 1 / 0",
        m0003_three="create table three ()",
    )
    with pytest.raises(MigrationFailed, match=r"^0002_two.sql: .*zero"):
        await migrate(empty, source=source)
    assert await ledger(empty) == ["0001_one.sql"]
    tables = "select to_regclass('one') as one, to_regclass('two') as two, to_regclass('three') as three"
    assert [value is not None for value in (await rows(empty, tables))[0]] == [True, False, False]
    assert await pending(empty, source=source) == ["0002_two.sql", "0003_three.sql"]


async def test_a_number_that_comes_late_is_applied(empty: str, tmp_path: Path) -> None:
    """Each room has a range of numbers, so a lower one may be written later."""
    source = write(tmp_path / "m", m0010_ten="create table ten ()")
    await migrate(empty, source=source)
    write(source, m0002_two="create table two ()")
    await migrate(empty, source=source)
    assert await ledger(empty) == ["0010_ten.sql", "0002_two.sql"]


async def test_eight_migrations_at_once_apply_each_file_once(empty: str, tmp_path: Path) -> None:
    source = write(
        tmp_path / "m", **{f"m000{n}_t": f"create table t{n} (); select pg_sleep(0.01)" for n in range(1, 5)}
    )
    await asyncio.gather(*(migrate(empty, source=source) for _ in range(8)))
    assert await ledger(empty) == [f"000{n}_t.sql" for n in range(1, 5)]


async def test_who_waits_too_long_for_another_migration_is_told(empty: str, tmp_path: Path) -> None:
    source = write(tmp_path / "m", m0001_one="create table one ()")
    async with opened(empty, None) as other:
        await other.execute("select pg_advisory_lock($1)", LOCK)
        with pytest.raises(MigrationFailed, match="another process"):
            await migrate(empty, source=source, patience_seconds=0.2)


async def test_kill_9_in_the_middle_leaves_a_database_that_the_next_one_finishes(empty: str, tmp_path: Path) -> None:
    source = write(
        tmp_path / "m", m0001_one="create table one ()", m0002_two="create table two (); select pg_sleep(60)"
    )
    program = (
        "import asyncio, pathlib, sys; from app.eventlog.migrate import migrate;"
        "asyncio.run(migrate(sys.stdin.readline().strip(), source=pathlib.Path(sys.argv[1])))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(source)], stdin=subprocess.PIPE, cwd=folder().parents[1], text=True
    )
    assert process.stdin is not None
    process.stdin.write(empty + "\n")
    process.stdin.flush()
    sleeping = "select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
    while not await rows(empty, sleeping):
        assert process.poll() is None
        await asyncio.sleep(0.02)
    process.kill()
    process.wait()
    process.stdin.close()
    write(source, m0002_two="create table two ()")
    await migrate(empty, source=source)
    assert await ledger(empty) == ["0001_one.sql", "0002_two.sql"]


async def test_a_statement_that_cannot_run_in_a_transaction(empty: str, tmp_path: Path) -> None:
    source = write(
        tmp_path / "m",
        m0001_one="create table one (n integer)",
        m0002_index="-- no-transaction\ncreate index concurrently if not exists one_n on one (n)",
    )
    await migrate(empty, source=source)
    assert await ledger(empty) == ["0001_one.sql", "0002_index.sql"]
    assert await rows(empty, "select from pg_indexes where indexname = 'one_n'")


async def test_a_table_that_stays_locked_fails_the_migration_instead_of_all_readers(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.eventlog.migrate.LOCK_SECONDS", 0.05)
    monkeypatch.setattr("app.eventlog.migrate.PAUSE_SECONDS", 0.01)
    source = write(tmp_path / "m", m0001_one="create table one ()")
    await migrate(empty, source=source)
    write(source, m0002_two="alter table one add n integer")
    async with opened(empty, None) as reader:
        transaction = reader.transaction()
        await transaction.start()
        await reader.execute("lock table one in access share mode")
        with pytest.raises(MigrationFailed, match=r"0002_two.sql.*lock timeout"):
            await migrate(empty, source=source)
        await transaction.rollback()
    await migrate(empty, source=source)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"m1_one": ""}, "1_one.sql: a migration is named"),
        ({"m0001_one": "", "m0001_two": ""}, "0001_two.sql: number 0001 is taken by 0001_one.sql"),
        ({}, "no migrations"),
    ],
)
def test_a_folder_that_is_not_in_order_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(MigrationFailed, match=message):
        load(write(tmp_path / "m", **files))


async def test_two_databases_of_one_server_can_be_migrated_at_once(
    postgres: Postgres, empty: str, tmp_path: Path
) -> None:
    """Roles belong to the server: both find the role missing, and one collides with the other."""
    role = f"race_{urlsplit(empty).path[1:]}"
    source = write(
        tmp_path / "m",
        m0001_role=f"""do $$ begin
            if not exists (select from pg_roles where rolname = '{role}') then
                perform pg_sleep(0.2);
                create role {role};
            end if;
        end $$""",
    )
    second = f"{urlsplit(empty).path[1:]}_b"
    async with opened(postgres.url, None) as server:
        await server.execute(f"create database {second}")
        try:
            other = urlsplit(empty)._replace(path=f"/{second}").geturl()
            await asyncio.gather(*(migrate(url, source=source) for url in (empty, other)))
            assert await ledger(empty) == await ledger(other) == ["0001_role.sql"]
        finally:
            await server.execute(f"drop database {second} with (force)")
            await server.execute(f"drop role {role}")
