"""Who gives a command and with what it is carried out; and the permission that each command names."""

import functools
import uuid
from collections.abc import Awaitable, Callable
from typing import Concatenate, Protocol

import msgspec

from app.access.roles import Permission, Principal, allows, least_role
from app.bus.connection import Bus
from app.clock import Clock
from app.commands.refusals import CommandRefused, Kind
from app.eventlog.append import Appender
from app.eventlog.connect import Pool
from app.objects.port import ObjectStore
from app.settings import Settings


class Means(Protocol):
    """What commands work with; app.boot.House has it."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def pool(self) -> Pool: ...
    @property
    def appender(self) -> Appender: ...
    @property
    def objects(self) -> ObjectStore: ...
    @property
    def bus(self) -> Bus: ...
    @property
    def incarnation(self) -> uuid.UUID: ...


class Caller(msgspec.Struct, frozen=True):
    principal: Principal
    idempotency_key: str | None = None
    """With the same key and the same request the first answer is given again."""
    traceparent: str | None = None
    """W3C trace context, noted with every event."""

    @property
    def team(self) -> str:
        return self.principal.team

    @property
    def actor(self) -> str:
        return self.principal.actor


class Done[T](msgspec.Struct, frozen=True):
    """What a command did."""

    result: T
    position: int | None
    """Of its last event in the log; None when nothing needed to be written."""
    replayed: bool = False
    """The answer of an earlier, equal request."""


type Command[**P, R] = Callable[Concatenate[Means, Caller, P], Awaitable[R]]

PERMISSIONS: dict[str, Permission] = {}
"""By qualified name of the command; what `permission_of` reads."""


def needs[**P, R](permission: Permission) -> Callable[[Command[P, R]], Command[P, R]]:
    """Name the permission of a command. It is checked at each call, whatever the door has checked before."""

    def mark(command: Command[P, R]) -> Command[P, R]:
        @functools.wraps(command)
        async def guarded(means: Means, caller: Caller, /, *arguments: P.args, **named: P.kwargs) -> R:
            check(caller.principal, permission)
            return await command(means, caller, *arguments, **named)

        PERMISSIONS[_name(command)] = permission
        return guarded

    return mark


def permission_of(command: Callable[..., object]) -> Permission:
    return PERMISSIONS[_name(command)]


def check(principal: Principal, permission: Permission) -> None:
    """Raises CommandRefused unless the principal has the permission."""
    if not allows(principal, permission):
        role = least_role(permission)
        whom = "an operator of this installation" if role is None else f"the role {role.value}"
        raise CommandRefused(Kind.FORBIDDEN, "permission_missing", f"{permission.value} takes {whom}")


def _name(command: Callable[..., object]) -> str:
    return f"{command.__module__}.{command.__qualname__}"
