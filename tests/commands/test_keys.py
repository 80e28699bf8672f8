"""API keys: told once, kept hashed, never more than their maker."""

import msgspec
import pytest

from app.access import Denied, Principal, Role, authenticate
from app.boot import House
from app.commands import keys
from app.commands.caller import Caller
from app.commands.refusals import CommandRefused, Kind
from tests.commands.test_revisions import lose_answers


def as_role(caller: Caller, role: Role, *, operator: bool = False) -> Caller:
    principal = Principal(actor=caller.actor, team=caller.team, role=role, operator=operator)
    return msgspec.structs.replace(caller, principal=principal)


async def opens(house: House, secret: str | None) -> bool:
    return not isinstance(await authenticate(house.pool, f"Bearer {secret}"), Denied)


async def test_a_secret_is_in_the_first_answer_and_nowhere_else(house: House, caller: Caller) -> None:
    keyed = msgspec.structs.replace(caller, idempotency_key="k")
    made = await keys.create(house, keyed, keys.NewKey(name="ci", role=Role.VIEWER))
    secret = made.result.secret
    assert secret is not None
    assert await opens(house, secret)
    assert secret not in repr(made)
    again = await keys.create(house, keyed, keys.NewKey(name="ci", role=Role.VIEWER))
    assert (again.replayed, again.result.id, again.result.secret) == (True, made.result.id, None)
    for table in ("seatrial.api_key", "eventlog.event", "eventlog.idempotency"):
        for row in await house.pool.fetch(f"select t::text as text from {table} as t"):
            text = row["text"]
            assert secret not in text
            assert secret.encode().hex() not in text
            assert secret[-40:].encode().hex() not in text


@pytest.mark.parametrize(
    ("role", "operator", "wanted", "wanted_operator"),
    [(Role.ADMIN, False, Role.ADMIN, True)],
)
async def test_nobody_hands_out_more_than_they_have(
    house: House, caller: Caller, role: Role, operator: bool, wanted: Role, wanted_operator: bool
) -> None:
    maker = as_role(caller, role, operator=operator)
    with pytest.raises(CommandRefused) as caught:
        await keys.create(house, maker, keys.NewKey(name="x", role=wanted, operator=wanted_operator))
    assert (caught.value.kind, caught.value.code) == (Kind.FORBIDDEN, "role_exceeds_own")
    assert await house.pool.fetchval("select count(*) from seatrial.api_key") == 0


async def test_an_admin_cannot_revoke_the_operators_key(house: House, caller: Caller) -> None:
    made = await keys.create(
        house, as_role(caller, Role.ADMIN, operator=True), keys.NewKey(name="op", role=Role.ADMIN, operator=True)
    )
    with pytest.raises(CommandRefused) as caught:
        await keys.revoke(house, caller, made.result.id)
    assert caught.value.kind is Kind.FORBIDDEN
    assert await opens(house, made.result.secret)


async def test_a_revoked_key_opens_nothing_and_stays_revoked_at_that_moment(house: House, caller: Caller) -> None:
    made = await keys.create(house, caller, keys.NewKey(name="ci"))
    first = await keys.revoke(house, caller, made.result.id)
    assert not await opens(house, made.result.secret)
    again = await keys.revoke(house, caller, made.result.id)
    assert again.result.revoked_at == first.result.revoked_at
    assert again.position is None


async def test_lost_answers_make_no_second_key_and_no_second_event(
    house: House, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        lost = lose_answers(patch)
        made = await keys.create(house, caller, keys.NewKey(name="ci"))
        assert lost
    assert await opens(house, made.result.secret)
    with monkeypatch.context() as patch:
        lost = lose_answers(patch)
        revoked = await keys.revoke(house, caller, made.result.id)
        assert lost
    assert revoked.result.revoked_at is not None
    assert not await opens(house, made.result.secret)
    types = [row["type"] for row in await house.pool.fetch("select type from eventlog.event order by position")]
    assert types == ["key.created", "key.revoked"]
