"""Who may do what: API keys, roles, and the one table of permissions.

In comes an Authorization header; out comes a Principal or a Denied. `roles` is pure; `rows` holds the statements on teams
and keys; `bootstrap` makes the first key of a local installation. People's OIDC tokens will come in by the same door.
"""

from app.access.authenticate import Denial, Denied, authenticate
from app.access.bootstrap import ensure_local_key
from app.access.roles import Permission, Principal, Role, allows, least_role, may_grant

__all__ = [
    "Denial",
    "Denied",
    "Permission",
    "Principal",
    "Role",
    "allows",
    "authenticate",
    "ensure_local_key",
    "least_role",
    "may_grant",
]
