"""API keys of the team, and who one is."""

import datetime
from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from app.access import Permission, Role, allows, rows
from app.boot import House
from app.commands import keys as commands
from app.commands.caller import Caller, permission_of
from app.http import answers, shapes
from app.http.access import needs
from app.http.given import Given
from app.http.problems import ProblemRaised
from app.http.reading import DEFAULT_SIZE, PageSize, PageToken, size_of
from app.http.writing import answered


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a key shall be; never more than its maker."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    role: Role = Role.MEMBER
    operator: bool = False
    """May also run the instance."""
    expires_at: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | None = None


@get("/v1/me", opt=needs(Permission.TEAM_READ), tags=["access"], operation_id="whoAmI")
async def who_am_i(house: Given[House], caller: Given[Caller]) -> answers.Me:
    """Whose key this is, and what it may do."""
    team = await rows.find_team(house.pool, caller.team)
    principal = caller.principal
    return answers.Me(
        actor=principal.actor,
        team=principal.team,
        team_name=team.name if team else None,
        role=principal.role,
        operator=principal.operator,
        permissions=tuple(permission.value for permission in Permission if allows(principal, permission)),
    )


@get("/v1/keys", opt=needs(Permission.KEYS_READ), tags=["access"], operation_id="listKeys")
async def list_keys(
    house: Given[House],
    caller: Given[Caller],
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Listed[answers.Key]:
    """The keys of the team, oldest first, without their secrets."""
    size = size_of(page_size)
    if page_token is not None and not (page_token.startswith("key_") and page_token.isascii()):
        raise ProblemRaised(400, "page_token_invalid", "this page token is not one of this list")
    found = await rows.list_keys(house.pool, team=caller.team, after=page_token or "", limit=size + 1)
    items = tuple(shapes.shape(answers.Key, row) for row in found[:size])
    return answers.Listed(items=items, next_page_token=items[-1].id if len(found) > size else None)


@post("/v1/keys", opt=needs(permission_of(commands.create)), tags=["access"], operation_id="createKey")
async def create_key(house: Given[House], caller: Given[Caller], data: JSONBody[NewKey]) -> Response[commands.KeyNow]:
    """Make a key. Its secret is in this answer and nowhere else, also not in the answer to a repeated request."""
    what = commands.NewKey(name=data.name, role=data.role, operator=data.operator, expires_at=data.expires_at)
    done = await commands.create(house, caller, what)
    return answered(done, done.result, house.incarnation, status=201, location="/v1/keys")


@post(
    "/v1/keys/{key:str}/revoke",
    opt=needs(permission_of(commands.revoke)),
    status_code=200,
    tags=["access"],
    operation_id="revokeKey",
)
async def revoke_key(house: Given[House], caller: Given[Caller], key: FromPath[str]) -> Response[commands.KeyNow]:
    """Revoke a key for good, one's own too."""
    done = await commands.revoke(house, caller, key)
    return answered(done, done.result, house.incarnation, status=200)


HANDLERS = (who_am_i, list_keys, create_key, revoke_key)
