"""Who may do what: one table. A role belongs to a person or key within one team; the operator runs the instance."""

import enum

import msgspec


class Role(enum.StrEnum):
    """Within one team, each including the ones before it."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


class Permission(enum.StrEnum):
    """`<what>:<how>`. Named beside each command and route; a test finds those that name none."""

    TEAM_READ = "team:read"
    TASKS_READ = "tasks:read"
    TASKS_WRITE = "tasks:write"
    """Push a pack: upload, finalize, name a task."""
    RUNS_READ = "runs:read"
    """Also evaluations, trials, scores."""
    RUNS_WRITE = "runs:write"
    """Start, cancel, retry."""
    ARTIFACTS_READ = "artifacts:read"
    """Files, archives and everything else a run left."""
    EVENTS_READ = "events:read"
    LOGS_READ = "logs:read"
    KEYS_READ = "keys:read"
    KEYS_WRITE = "keys:write"
    """Make and revoke keys of the team, up to one's own role."""
    TEAM_WRITE = "team:write"
    INSTANCE_READ = "instance:read"
    INSTANCE_WRITE = "instance:write"
    """Replay or skip parked effects, rebuild views, make teams, rotate keys."""


_READ = frozenset(
    {
        Permission.TEAM_READ,
        Permission.TASKS_READ,
        Permission.RUNS_READ,
        Permission.ARTIFACTS_READ,
        Permission.EVENTS_READ,
        Permission.LOGS_READ,
    }
)
_WORK = frozenset({Permission.TASKS_WRITE, Permission.RUNS_WRITE})
_GOVERN = frozenset({Permission.KEYS_READ, Permission.KEYS_WRITE, Permission.TEAM_WRITE})

GRANTED: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: _READ,
    Role.MEMBER: _READ | _WORK,
    Role.ADMIN: _READ | _WORK | _GOVERN,
}
OPERATED = frozenset({Permission.INSTANCE_READ, Permission.INSTANCE_WRITE})


class Principal(msgspec.Struct, frozen=True):
    """Who asks, once it is known. `actor` is what events and logs carry: an id, never a name."""

    actor: str
    team: str
    role: Role
    operator: bool = False


def allows(principal: Principal, permission: Permission) -> bool:
    """An operator's own role counts in its own team as anybody's; the instance is the operator's alone."""
    return permission in (OPERATED if principal.operator else frozenset()) | GRANTED[principal.role]


def least_role(permission: Permission) -> Role | None:
    """The lowest role that has the permission, for the message of a refusal; None: it takes an operator."""
    return next((role for role in Role if permission in GRANTED[role]), None)


def may_grant(principal: Principal, role: Role, *, operator: bool) -> bool:
    """Nobody hands out more than they have."""
    ranks = list(Role)
    return (
        allows(principal, Permission.KEYS_WRITE)
        and ranks.index(role) <= ranks.index(principal.role)
        and (principal.operator or not operator)
    )
