"""Brings a database to the schema of this program: runs db/migrations/NNNN_name.sql in order, each exactly once.

A ledger (migrations.applied) remembers every file with its hash; a file that was applied and has changed since is
refused by its name. One session at a time migrates (advisory lock). A file is one transaction with its ledger row, so a
kill at any moment leaves it applied or not. A file whose first line is `-- no-transaction` holds one statement that
cannot run inside a transaction (CREATE INDEX CONCURRENTLY); it must be safe to run again.
"""

import asyncio
import hashlib
import re
from pathlib import Path

import asyncpg
import msgspec

import app
from app.eventlog.connect import Session, connect

LOCK = 0x5EA7_81A1
"""The advisory lock of whoever migrates."""
OLDEST_SERVER = 18_00_00
LOCK_SECONDS = 5
PAUSE_SECONDS = 0.2
PRIVILEGES = "\nThe login must own the database, and create roles; or an administrator runs db/roles.sql before."
NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
NO_TRANSACTION = "-- no-transaction"


class MigrationFailed(Exception):
    """A migration could not be applied; the message names it. Nothing of it was kept."""


class MigrationChanged(MigrationFailed):
    """A migration that this database has applied reads differently now. Restore the file; write a new one instead."""


class SchemaNewer(MigrationFailed):
    """The database was migrated by a newer Seatrial. Start that one, or restore a backup from before."""


class ServerTooOld(MigrationFailed):
    """Seatrial needs PostgreSQL 18 or newer (uuidv7; no older one was ever tested)."""


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    """The file's name."""
    sql: str

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.sql.encode()).digest()

    @property
    def in_transaction(self) -> bool:
        return not self.sql.startswith(NO_TRANSACTION)


def folder() -> Path:
    """Where the migrations are: in the package when installed, beside it in a checkout."""
    package = Path(app.__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "db" / "migrations"


def load(source: Path) -> list[Migration]:
    """The migrations of a folder, in order. Raises MigrationFailed for a misnamed file or a number used twice."""
    found: dict[int, Migration] = {}
    for path in sorted(source.glob("*.sql")):
        match = NAME.match(path.name)
        if match is None:
            raise MigrationFailed(f"{path.name}: a migration is named NNNN_name.sql")
        number = int(match[1])
        if number in found:
            raise MigrationFailed(f"{path.name}: number {match[1]} is taken by {found[number].name}")
        found[number] = Migration(number, path.name, path.read_text())
    if not found:
        raise MigrationFailed(f"no migrations in {source.name}")
    return [found[number] for number in sorted(found)]


async def migrate(url: str, *, source: Path | None = None, patience_seconds: float = 120) -> None:
    """Apply what is missing. `url` is a login that owns the database. Raises MigrationFailed or one of its kinds."""
    migrations = load(source or folder())
    connection = await connect(url, role=None, command_seconds=600)
    try:
        await _become_the_only_one(connection, patience_seconds)
        await _prepare_ledger(connection)
        for migration in _missing(migrations, await _applied(connection)):
            await _apply(connection, migration)
    finally:
        await connection.close(timeout=5)


async def pending(url: str, *, source: Path | None = None) -> list[str]:
    """The names of migrations that this database lacks. Raises MigrationChanged or SchemaNewer as migrate would."""
    migrations = load(source or folder())
    connection = await connect(url, role=None)
    try:
        has_ledger = await connection.fetchval("select to_regclass('migrations.applied') is not null")
        applied = await _applied(connection) if has_ledger else {}
        return [migration.name for migration in _missing(migrations, applied)]
    finally:
        await connection.close(timeout=5)


def _missing(migrations: list[Migration], applied: dict[int, tuple[str, bytes]]) -> list[Migration]:
    known = {migration.number: migration for migration in migrations}
    for number, (name, sha256) in sorted(applied.items()):
        if number not in known:
            raise SchemaNewer(f"the database has applied {name}, which this program does not know")
        if known[number].sha256 != sha256:
            raise MigrationChanged(f"{known[number].name} was applied as {name} with other content")
    return [migration for migration in migrations if migration.number not in applied]


async def _become_the_only_one(connection: Session, patience_seconds: float) -> None:
    deadline = asyncio.get_running_loop().time() + patience_seconds
    while not await connection.fetchval("select pg_try_advisory_lock($1)", LOCK):
        if asyncio.get_running_loop().time() > deadline:
            raise MigrationFailed(f"another process has been migrating for {patience_seconds:.0f} s")
        await asyncio.sleep(0.1)


async def _prepare_ledger(connection: Session) -> None:
    version = int(await connection.fetchval("show server_version_num"))
    if version < OLDEST_SERVER:
        raise ServerTooOld(f"Seatrial needs PostgreSQL 18 or newer; the server is {version // 10000}")
    await connection.execute("""
        create schema if not exists migrations;
        create table if not exists migrations.applied (
            number     integer primary key,
            name       text        not null,
            sha256     bytea       not null,
            applied_at timestamptz not null default clock_timestamp()
        );
    """)


async def _applied(connection: Session) -> dict[int, tuple[str, bytes]]:
    rows = await connection.fetch("select number, name, sha256 from migrations.applied")
    return {row["number"]: (row["name"], row["sha256"]) for row in rows}


async def _apply(connection: Session, migration: Migration, tries: int = 5) -> None:
    for left in reversed(range(tries)):
        try:
            if migration.in_transaction:
                async with connection.transaction():
                    await connection.execute(f"set local lock_timeout = '{LOCK_SECONDS}s'")
                    await connection.execute(migration.sql)
                    await _remember(connection, migration)
            else:
                await connection.execute(migration.sql)
                await _remember(connection, migration)
            return
        except asyncpg.PostgresError as error:
            if not left or not _passes(error):
                remedy = PRIVILEGES if isinstance(error, asyncpg.InsufficientPrivilegeError) else ""
                raise MigrationFailed(f"{migration.name}: {error}{remedy}") from error
            await asyncio.sleep(PAUSE_SECONDS * (tries - left))


async def _remember(connection: Session, migration: Migration) -> None:
    await connection.execute(
        "insert into migrations.applied (number, name, sha256) values ($1, $2, $3)",
        migration.number,
        migration.name,
        migration.sha256,
    )


def _passes(error: asyncpg.PostgresError) -> bool:
    """Whether another try may succeed. Roles belong to the cluster, not to the database: two databases of one server
    that are migrated at the same moment can collide on them (unique violation, or `tuple concurrently updated`)."""
    return isinstance(
        error,
        asyncpg.LockNotAvailableError
        | asyncpg.DeadlockDetectedError
        | asyncpg.UniqueViolationError
        | asyncpg.DuplicateObjectError
        | asyncpg.InternalServerError,
    )
