"""From an Authorization header to a principal, or to the reason why not."""

import datetime
import enum
import hmac

import msgspec

from app.access import rows
from app.access.keys import digest, parse
from app.access.roles import Principal
from app.clock import SYSTEM, Clock

TOUCH_EVERY = datetime.timedelta(minutes=1)


class Denial(enum.StrEnum):
    """Why a request is not let in. All are 401; the code goes to the caller, who holds the key and may know."""

    CREDENTIALS_MISSING = "credentials_missing"
    CREDENTIALS_MALFORMED = "credentials_malformed"
    KEY_UNKNOWN = "key_unknown"
    KEY_EXPIRED = "key_expired"
    KEY_REVOKED = "key_revoked"


DETAIL: dict[Denial, str] = {
    Denial.CREDENTIALS_MISSING: "Send the header `Authorization: Bearer <API key>`.",
    Denial.CREDENTIALS_MALFORMED: "The API key is not one, or was mistyped: it starts with sea_ and ends with a checksum.",
    Denial.KEY_UNKNOWN: "No such API key. It may belong to another installation.",
    Denial.KEY_EXPIRED: "This API key has expired. Ask an admin of your team for a new one.",
    Denial.KEY_REVOKED: "This API key was revoked. Ask an admin of your team for a new one.",
}


class Denied(msgspec.Struct, frozen=True):
    code: Denial

    @property
    def detail(self) -> str:
        return DETAIL[self.code]


async def authenticate(connection: rows.Connection, header: str | None, *, clock: Clock = SYSTEM) -> Principal | Denied:
    """Who sends `header`, the value of Authorization. Reads one row; notes the use of the key once a minute.

    The id in a key is no secret, so it alone tells an unknown key from a known one; anything more is told only to who
    has the whole key.
    """
    if not header:
        return Denied(Denial.CREDENTIALS_MISSING)
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        return Denied(Denial.CREDENTIALS_MISSING)
    key = parse(token.strip(" "))
    if key is None:
        return Denied(Denial.CREDENTIALS_MALFORMED)
    found = await rows.find_key(connection, key.key_id)
    if found is None or found.hash is None or not hmac.compare_digest(found.hash, digest(key)):
        return Denied(Denial.KEY_UNKNOWN)
    now = clock.now()
    if found.revoked_at is not None:
        return Denied(Denial.KEY_REVOKED)
    if found.expires_at is not None and found.expires_at <= now:
        return Denied(Denial.KEY_EXPIRED)
    if found.last_used_at is None or now - found.last_used_at >= TOUCH_EVERY:
        await rows.touch_key(connection, found.id, now)
    return Principal(actor=found.id, team=found.team, role=found.role, operator=found.operator)
