"""What lacks before the processes can start, made step by step: folders, servers, schema, streams, the first key.

Each step is quick when its work is done already, and may be repeated after a kill at any line.
"""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import msgspec
import nats.errors

from app.access.bootstrap import RowMade, ensure_local_key
from app.access.rows import OneConnection
from app.bus import topology
from app.bus.restore import check_in_step, restore
from app.bus.resume import RestoreNeeded
from app.domain.registry import Meta
from app.eventlog.append import append_direct
from app.eventlog.connect import LOST, connect
from app.eventlog.drafts import unit_of
from app.eventlog.incarnation import current_incarnation
from app.eventlog.migrate import MigrationFailed, migrate
from app.local import child, state
from app.local.errors import LocalError, NoSpace, PortTaken
from app.local.nats import Nats
from app.local.postgres import Postgres
from app.local.report import Report
from app.local.supervisor import Server, import_path
from app.settings import PREFIX, Settings

SPACE_BYTES = 2 * 1024**3
PORT_SECONDS = 5.0
"""How long the processes of a killed supervisor may take to let go of the port."""

OF_THE_COMMAND_LINE = frozenset({"api_url", "api_key"})


def environment_of(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: `base` without our variables, and each setting that is not the default.

    A URL with a secret goes by the name of the file that holds it; what the command line alone uses (the key of whoever
    starts the server) goes to nobody. Bytecode is kept whatever `base` says: six processes
    would otherwise compile the same modules at every start.
    """
    dropped = "PYTHONDONTWRITEBYTECODE"
    result = {name: value for name, value in base.items() if name != dropped and not name.startswith(PREFIX)}
    result["PYTHONPATH"] = import_path()
    files = state.run_folder(settings.home_path)
    for field in msgspec.structs.fields(Settings):
        value = getattr(settings, field.name)
        if field.name in OF_THE_COMMAND_LINE:
            continue
        if field.name in ("database_url", "nats_url", "nats_relay_url"):
            if value:
                result[f"{PREFIX}{field.name.upper()}_FILE"] = str(files / field.name.replace("_", "-"))
        elif value != field.default:
            result[PREFIX + field.name.upper()] = str(value).lower() if isinstance(value, bool) else str(value)
    return result


def make_home(home: Path) -> None:
    """The folders of a home. Under root others may walk through it, since Postgres runs as another account."""
    home.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
    for name in ("run", "logs", "keys", "objects"):
        (home / name).mkdir(exist_ok=True, mode=0o700)
    free = shutil.disk_usage(home).free
    if free < SPACE_BYTES:
        raise NoSpace(
            f"Seatrial needs {SPACE_BYTES / 1e9:.0f} GB free in {home} and finds {free / 1e9:.1f}; "
            "free some, or set SEATRIAL_HOME to a folder on another disk."
        )


def start_postgres(
    settings: Settings, home: Path, servers: dict[str, Server], stack: contextlib.ExitStack, report: Report
) -> str:
    with report.step("postgres") as step:
        if settings.database_url:
            step.detail = "external (SEATRIAL_DATABASE_URL)"
            return settings.database_url
        server = Postgres(home / "postgres")
        servers["postgres"] = server
        stack.callback(server.stop)
        server.start()
        step.detail = f"127.0.0.1:{server.port}"
        return server.url


def start_nats(
    settings: Settings, home: Path, servers: dict[str, Server], stack: contextlib.ExitStack, report: Report
) -> str:
    with report.step("nats") as step:
        if settings.nats_url:
            step.detail = "external (SEATRIAL_NATS_URL)"
            return settings.nats_url
        server = Nats(home / "nats")
        servers["nats"] = server
        stack.callback(server.stop)
        server.start()
        step.detail = f"127.0.0.1:{server.port}"
        return server.url


def prepare_schema(database_url: str, nats_url: str, home: Path, report: Report, *, restored: bool = False) -> None:
    """The schema, the first key, the streams. `restored`: the database was, so that its log begins a new life here, before
    anything else writes to it."""
    write_urls(home, {"database-url": database_url, "nats-url": nats_url, "nats-relay-url": nats_url})
    with report.step("schema") as step:
        try:
            asyncio.run(migrate(database_url))
            asyncio.run(_first_key(database_url, state.key_file(home)))
        except MigrationFailed as error:
            raise LocalError(
                f"The database could not be brought up to date: {str(error).rstrip('.')}. {type(error).__doc__}"
            ) from error
        except LOST as error:
            raise LocalError(
                f"The database does not answer ({type(error).__name__}); check SEATRIAL_DATABASE_URL."
            ) from error
        except asyncpg.PostgresError as error:
            raise LocalError(
                f"The database refused ({error}); check the rights of SEATRIAL_DATABASE_URL's user."
            ) from error
        step.detail = "up to date"
    with report.step("streams") as step:
        try:
            made = asyncio.run(topology.ensure(nats_url))
        except topology.TopologyRefused as error:
            raise LocalError(f"The bus has streams that do not fit: {error}") from error
        except (OSError, nats.errors.Error) as error:
            raise LocalError(f"NATS does not answer ({type(error).__name__}); check SEATRIAL_NATS_URL.") from error
        step.detail = f"{len(made)} made or changed" if made else "up to date"
    _agree(database_url, nats_url, report, restored=restored)


def _agree(database_url: str, nats_url: str, report: Report, *, restored: bool) -> None:
    """No process may write to a log that is behind what it has told: positions would be given twice."""
    try:
        if restored:
            with report.step("log") as step:
                step.detail = (
                    f"a new life from position {asyncio.run(restore(database_url, nats_url)).first_position} on"
                )
        else:
            asyncio.run(check_in_step(database_url, nats_url))
    except RestoreNeeded as error:
        raise LocalError(
            "The bus has told of events that the database does not have. If the database was restored from a backup, run "
            "`seatrial up --restored`; otherwise correct SEATRIAL_NATS_URL."
        ) from error
    except (*LOST, asyncpg.PostgresError, nats.errors.Error) as error:
        raise LocalError(f"The log and the bus could not be compared ({type(error).__name__}); try again.") from error


async def _first_key(database_url: str, path: Path) -> None:
    connection = await connect(database_url)
    try:
        await ensure_local_key(connection, path, audit=_audit)
    finally:
        await connection.close()


async def _audit(connection: OneConnection, rows: tuple[RowMade, ...]) -> None:
    """Append the events of new rows, in their transaction."""
    incarnation = await current_incarnation(connection)
    units = [
        unit_of(row.category, row.stream, row.team, 0, (row.draft,), Meta(actor=row.actor, correlation=row.stream))
        for row in rows
    ]
    refused = [outcome for outcome in await append_direct(connection, units, incarnation) if not outcome.accepted]
    if refused:
        raise LocalError(f"The log refused the first key ({refused[0].refusal}); see the database's log.")


def write_urls(home: Path, urls: Mapping[str, str]) -> None:
    """Each as a private file of its name: database-url, nats-url, nats-relay-url."""
    for name, url in urls.items():
        path = state.run_folder(home) / name
        if not path.exists() or path.read_text() != url:
            child.write_private(path, url)


def check_port(settings: Settings) -> None:
    """Raises PortTaken when the API's port is another program's: asked before anything is written, and again below."""
    if settings.http_port:
        used = settings.home_path.exists()
        _await_port(settings.http_port, settings.http_host, PORT_SECONDS if used else 0.0)


def free_http_port(settings: Settings, home: Path) -> int:
    """The port of the API. Raises PortTaken."""
    port = settings.http_port or child.choose_port(state.run_folder(home) / "http-port")
    _await_port(port, settings.http_host, PORT_SECONDS)
    return port


def _await_port(port: int, host: str, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while not child.port_is_free(port, host):
        if time.monotonic() > deadline:
            raise PortTaken(f"Port {port} is taken by another program; stop it, or choose one with SEATRIAL_HTTP_PORT.")
        time.sleep(0.05)


def chosen(settings: Settings, home: Path, docker_host: str, http_port: int) -> Settings:
    """The settings of the processes: all that was found or chosen here, said outright."""
    files = state.run_folder(home)
    return msgspec.structs.replace(
        settings,
        home=str(home),
        database_url=(files / "database-url").read_text(),
        nats_url=(files / "nats-url").read_text(),
        nats_relay_url=(files / "nats-relay-url").read_text(),
        objects_url=settings.objects,
        docker_host=docker_host,
        harness_home=str(settings.harness_path),
        http_port=http_port,
    )
