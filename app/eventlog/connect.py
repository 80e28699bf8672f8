"""How anybody here connects to Postgres: with a role of its own, bounded waiting, and settings that protect the log."""

from typing import Any

import asyncpg

# Lazily evaluated: asyncpg's classes are generic in their stubs only.
type Session = asyncpg.Connection[Any]
"""A connection of one's own."""
type Pool = asyncpg.Pool[Any]
type Connection = asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]
"""A connection, be it one's own or lent by a pool."""

SETTINGS = {
    "application_name": "seatrial",
    "default_transaction_isolation": "read committed",  # eventlog.append refuses others; whatever the server's default
    "synchronous_commit": "on",  # what is acknowledged is durable
    "jit": "off",  # our statements are short; compiling them costs more than running them
    "idle_in_transaction_session_timeout": "30s",  # nobody may hold up the tail's barrier by forgetting a transaction
    "client_connection_check_interval": "2s",  # the locks of a killed process go with it, also in mid-statement
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

LOST: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that dies inside transaction()
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # the server we reach is a standby now
)
"""The ways in which a connection that dies, or cannot be made, shows itself. asyncpg.DataError (the value does not fit)
is an InterfaceError too and must be caught before."""


def settings(role: str | None) -> dict[str, str]:
    return SETTINGS if role is None else SETTINGS | {"role": role}


async def connect(
    url: str,
    *,
    role: str | None = "seatrial_app",
    connect_seconds: float = 5,
    command_seconds: float = 30,
) -> Session:
    """One connection. `role` None: as the login itself, which owns the schema (migrations, operators)."""
    return await asyncpg.connect(
        url, timeout=connect_seconds, command_timeout=command_seconds, server_settings=settings(role)
    )


async def open_pool(
    url: str,
    *,
    role: str | None = "seatrial_app",
    min_size: int = 1,
    max_size: int = 8,
    command_seconds: float = 30,
) -> Pool:
    """A pool whose connections all have `role`. The caller closes it (`async with`).

    Who borrows a connection changes nothing of its session (no LISTEN, no session lock, no SET but `set local`): what needs
    that has a connection of its own.
    """
    return await asyncpg.create_pool(
        url,
        min_size=min_size,
        max_size=max_size,
        timeout=5,
        command_timeout=command_seconds,
        server_settings=settings(role),
        reset=_returned,
    )


async def _returned(connection: Connection) -> None:
    """Nothing to undo: asyncpg has rolled back what was left open. Its own RESET ALL and UNLISTEN would be a round trip for
    every loan; a trial's dispatcher alone makes 24 of them (measured), nearly one for each statement."""
