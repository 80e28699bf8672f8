"""The permission table."""

from hypothesis import given
from hypothesis import strategies as st

from app import ids
from app.access.roles import GRANTED, OPERATED, Permission, Principal, Role, allows, least_role, may_grant

PRINCIPALS = st.builds(
    Principal,
    actor=st.just(ids.new("key")),
    team=st.just(ids.new("team")),
    role=st.sampled_from(Role),
    operator=st.booleans(),
)


def test_each_role_includes_the_one_before() -> None:
    assert GRANTED[Role.VIEWER] < GRANTED[Role.MEMBER] < GRANTED[Role.ADMIN]


def test_a_permission_is_of_a_team_or_of_the_instance() -> None:
    assert GRANTED[Role.ADMIN] | OPERATED == set(Permission)
    assert not GRANTED[Role.ADMIN] & OPERATED


def test_a_viewer_changes_nothing() -> None:
    assert all(permission.endswith(":read") for permission in GRANTED[Role.VIEWER])


@given(PRINCIPALS, st.sampled_from(Permission))
def test_a_permission_comes_from_the_role_or_from_operating(principal: Principal, permission: Permission) -> None:
    least = least_role(permission)
    ranks = list(Role)
    by_role = least is not None and ranks.index(principal.role) >= ranks.index(least)
    assert allows(principal, permission) is (by_role or (least is None and principal.operator))


@given(PRINCIPALS, st.sampled_from(Role), st.booleans())
def test_nobody_hands_out_more_than_they_have(giver: Principal, role: Role, operator: bool) -> None:
    if may_grant(giver, role, operator=operator):
        taker = Principal(actor=giver.actor, team=giver.team, role=role, operator=operator)
        assert {p for p in Permission if allows(taker, p)} <= {p for p in Permission if allows(giver, p)}
        assert allows(giver, Permission.KEYS_WRITE)
    else:
        assert giver.role != Role.ADMIN or (operator and not giver.operator)
