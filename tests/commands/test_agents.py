"""The agents that a run may name: those of the harness, and those that were stored under a name, once and for good."""

import asyncio
import subprocess
from pathlib import Path

import msgspec
import pytest

from app import ids
from app.access import Principal, Role, rows
from app.boot import House
from app.commands import agents
from app.commands.caller import Caller
from app.commands.refusals import CommandRefused, Kind
from app.domain import run
from app.domain.agents import Agent, agent_bytes, agent_digest
from app.domain.registry import Meta
from app.eventlog.drafts import unit_of
from app.eventlog.read import read_stream
from tests.commands.test_revisions import lose_answers
from tests.commands.test_runs import as_owner
from workers.dispatcher.harness import locate

PINNED = Agent(name="claude-code", version="2.0", model="anthropic/x", settings={"turns": 9})
NEW = agents.NewAgent(name="careful", agent=PINNED)

LIST = "from harbor.models.agent.name import AgentName; print('\\n'.join(one.value for one in AgentName))"
NOT_REGISTERED = {"terminus", "terminus-1"}
"""Harbor lists these names and cannot make such agents."""


@pytest.mark.harness
def test_the_list_is_the_harnesss_own(harness: Path) -> None:
    built = locate.ensure(harness)
    said = subprocess.run([built.python, "-c", LIST], capture_output=True, text=True, check=True)
    assert set(agents.NAMES) == set(said.stdout.split()) - NOT_REGISTERED
    assert list(agents.NAMES) == sorted(agents.NAMES)


@pytest.mark.parametrize("name", [*agents.NAMES, "my_package.agents:Mine", "acp:registry-id@1.0", "acp:gemini@1.0"])
def test_agents_by_name_by_import_path_and_by_registry_are_taken(name: str) -> None:
    assert agents.check(Agent(name=name)) is None


@pytest.mark.parametrize("name", ["orcle", "mine", "package.module", "a b:C", "../x:Y", "acp:", "terminus-1"])
def test_others_are_refused(name: str) -> None:
    refused = agents.check(Agent(name=name))
    assert refused is not None
    assert refused.code == "unknown_agent"


@pytest.mark.parametrize(
    "name", ["password", "api_key", "OPENAI_API_KEY", "openaiApiKey", "auth-token", "Authorization", "client_secret"]
)
def test_a_text_under_a_secrets_name_is_refused_whatever_it_looks_like(name: str) -> None:
    refused = agents.check(Agent(name="oracle", settings={"provider": [{name: "winter"}]}))
    assert refused is not None
    assert (refused.code, "winter" in refused.detail) == ("secret_in_settings", False)
    assert agents.check(Agent(name="oracle", settings={name: "", "max_tokens": "5", "token_limit": "9"})) is None


async def test_settings_fit_into_an_event_or_are_refused_by_name(house: House, caller: Caller) -> None:
    """The log takes 256 KiB; what it would not take is refused at the door, and what is let in is taken."""
    most = agents.SETTINGS_BYTES - len('{"a":""}')
    taken = Agent(name="oracle", settings={"a": "\\" * (most // 2)})
    labels = {"\x01" * 60 + str(n): '"' * 255 for n in range(32)}
    assert agents.check(taken) is None
    refused = agents.check(Agent(name="oracle", settings={"a": "x" * (most + 1)}))
    assert refused is not None
    assert (refused.kind, refused.code, refused.errors[0].pointer) == (
        Kind.INVALID,
        "settings_too_large",
        "/agent/settings",
    )
    drafts = run.decide(
        None,
        run.Request(
            number=1, agent=taken, trials=1, roster="sha256:a", evaluations=1, name="\x01" * 200, labels=labels
        ),
    )
    assert isinstance(drafts, tuple)
    unit = unit_of("run", ids.new("run"), caller.team, 0, drafts, Meta(actor="key_a"))
    assert (await house.appender.append(unit)).accepted


async def stored(house: House) -> list[tuple[str, str]]:
    """(id, name) of every stored agent, and the log tells of each and of no other."""
    found = [
        (row["id"], row["name"]) for row in await house.pool.fetch("select id, name from seatrial.agent order by id")
    ]
    told = await house.pool.fetch("select stream from eventlog.event where type = 'agent.created' order by stream")
    assert [row["stream"] for row in told] == [one for one, _ in found]
    return found


async def test_a_stored_agent_is_a_row_and_an_event_that_says_the_same(house: House, caller: Caller) -> None:
    done = await agents.create(house, caller, NEW)
    made = done.result
    assert (made.name, made.agent, made.agent_digest, made.created) == ("careful", PINNED, agent_digest(PINNED), True)
    row = await house.pool.fetchrow("select * from seatrial.agent")
    assert (row["id"], row["team"], row["name"]) == (made.id, caller.team, "careful")
    assert (row["definition"], row["created_by"]) == (agent_bytes(PINNED), caller.actor)
    assert made.agent_digest == f"sha256:{row['digest'].hex()}"
    async with house.pool.acquire() as connection:
        [event] = await read_stream(connection, made.id, private=True)
    assert (event.position, event.type, event.team) == (done.position, "agent.created", caller.team)
    assert msgspec.json.decode(event.data) == {
        "agent": msgspec.to_builtins(PINNED),
        "agent_digest": made.agent_digest,
    }
    assert msgspec.json.decode(event.private or b"") == {"name": "careful"}


async def test_a_name_means_one_agent_for_ever(house: House, caller: Caller) -> None:
    first = (await agents.create(house, caller, NEW)).result
    again = await agents.create(house, caller, NEW)
    assert (again.result, again.position) == (msgspec.structs.replace(first, created=False), None)
    other = agents.NewAgent(name="careful", agent=msgspec.structs.replace(PINNED, model="anthropic/y"))
    with pytest.raises(CommandRefused) as caught:
        await agents.create(house, caller, other)
    assert (caught.value.kind, caught.value.code) == (Kind.CONFLICT, "agent_name_taken")
    assert caught.value.errors[0].pointer == "/name"
    assert await stored(house) == [(first.id, "careful")]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("oracle", "agent_name_shipped"),
        ("Claude-Code", "agent_name_shipped"),
        ("", "agent_name_invalid"),
        ("a b", "agent_name_invalid"),
        ("package:Class", "agent_name_invalid"),
        ("acp:x", "agent_name_invalid"),
        ("x" * 101, "agent_name_invalid"),
        ("line\n", "agent_name_invalid"),
        ("agt_01m8q50sqgfr8rr3p2njew2ywc", "agent_name_invalid"),
        ("sk-ant-" + "abcdefgh12345678" * 3, "secret_in_name"),
    ],
)
async def test_a_name_that_may_mean_something_else_is_refused(
    house: House, caller: Caller, name: str, code: str
) -> None:
    with pytest.raises(CommandRefused) as caught:
        await agents.create(house, caller, agents.NewAgent(name=name, agent=PINNED))
    assert (caught.value.code, caught.value.errors[0].pointer) == (code, "/name")
    assert await stored(house) == []


async def test_an_agent_that_cannot_be_is_not_stored(house: House, caller: Caller) -> None:
    for agent in (Agent(name="orcle"), Agent(name="oracle", settings={"key": "sk-ant-" + "abcdefgh12345678" * 3})):
        with pytest.raises(CommandRefused) as caught:
            await agents.create(house, caller, agents.NewAgent(name="mine", agent=agent))
        assert caught.value.errors[0].pointer.startswith("/agent/")
    assert await stored(house) == []


async def test_of_many_at_once_one_stores_the_name(house: House, caller: Caller) -> None:
    keyed = msgspec.structs.replace(caller, idempotency_key="k")
    equal = await asyncio.gather(*(agents.create(house, keyed, NEW) for _ in range(5)))
    assert len({one.result.id for one in equal}) == 1
    assert [one.replayed for one in equal].count(False) == 1
    assert {one.position for one in equal} == {equal[0].position}
    different = [msgspec.structs.replace(PINNED, model=f"m{n}") for n in range(5)]
    tried = await asyncio.gather(
        *(agents.create(house, caller, agents.NewAgent(name="other", agent=one)) for one in different),
        return_exceptions=True,
    )
    assert [isinstance(one, CommandRefused) and one.code for one in tried].count("agent_name_taken") == 4
    assert [name for _, name in await stored(house)] == ["careful", "other"]


async def test_the_key_of_another_request_is_not_taken(house: House, caller: Caller) -> None:
    keyed = msgspec.structs.replace(caller, idempotency_key="k")
    await agents.create(house, keyed, NEW)
    with pytest.raises(CommandRefused) as caught:
        await agents.create(house, keyed, agents.NewAgent(name="other", agent=PINNED))
    assert caught.value.kind is Kind.MISMATCH


async def test_a_lost_answer_stores_no_second_agent(
    house: House, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_answers(monkeypatch)
    done = await agents.create(house, caller, NEW)
    assert lost
    assert done.result.created
    assert done.position is not None
    assert await stored(house) == [(done.result.id, "careful")]


async def test_a_connection_that_dies_between_row_and_event_leaves_neither(
    house: House, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is written first, and nobody sees it without its event."""
    killed: list[int] = []
    written = agents.written

    async def kill_first(connection, means, units):
        if not killed:
            killed.append(connection.get_server_pid())
            async with as_owner(house) as owner:
                assert await owner.fetchval("select pg_terminate_backend($1, 5000)", killed[0])
                assert await owner.fetchval("select count(*) from seatrial.agent") == 0
        return await written(connection, means, units)

    monkeypatch.setattr(agents, "written", kill_first)
    done = await agents.create(house, caller, NEW)
    assert killed
    assert await stored(house) == [(done.result.id, "careful")]


async def test_a_run_may_name_a_stored_agent_or_one_of_the_harness(
    house: House, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await agents.create(house, caller, NEW)).result
    for reference in ("careful", made.id):
        assert await agents.choose(house, caller, reference) == agents.Chosen(PINNED, made.id)
    for name in ("oracle", "my_package.agents:Mine", "acp:registry-id@1.0"):
        assert await agents.choose(house, caller, name) == agents.Chosen(Agent(name=name))
    assert await agents.choose(house, caller, PINNED) == agents.Chosen(PINNED)
    monkeypatch.setattr(agents, "NAMES", ("careful", *agents.NAMES))  # a later harness
    assert (await agents.choose(house, caller, "careful")).id == made.id


@pytest.mark.parametrize(
    ("wanted", "pointer", "code", "words"),
    [
        ("carefull", "/agent", "unknown_agent", "did you mean careful?"),
        ("orcle", "/agent", "unknown_agent", "did you mean oracle?"),
        ("nothing like it", "/agent", "unknown_agent", "GET /v1/agents"),
        (ids.new("agent"), "/agent", "unknown_agent", "there is no agent"),
        (Agent(name="carefull"), "/agent/name", "unknown_agent", "did you mean careful?"),
        (Agent(name="careful", model="m"), "/agent/name", "agent_is_stored", "careful is a stored agent"),
        (
            Agent(name="oracle", settings={"a": "x" * agents.SETTINGS_BYTES}),
            "/agent/settings",
            "settings_too_large",
            "",
        ),
    ],
    ids=["nearest stored", "nearest shipped", "none", "unknown id", "outright", "stored with a model", "settings"],
)
async def test_an_agent_that_there_is_not_is_told_with_the_nearest_one(
    house: House, caller: Caller, wanted: Agent | str, pointer: str, code: str, words: str
) -> None:
    await agents.create(house, caller, NEW)
    with pytest.raises(CommandRefused) as caught:
        await agents.choose(house, caller, wanted)
    assert (caught.value.kind, caught.value.code) == (Kind.INVALID, code)
    assert caught.value.errors[0].pointer == pointer
    assert words in caught.value.detail


async def test_a_stored_agent_is_its_teams_alone(house: House, caller: Caller) -> None:
    made = (await agents.create(house, caller, NEW)).result
    team = ids.new("team")
    await rows.insert_team(house.pool, team, "strangers")
    stranger = Caller(Principal(actor=ids.new("key"), team=team, role=Role.MEMBER))
    for reference in ("careful", made.id, "carefull"):
        with pytest.raises(CommandRefused) as caught:
            await agents.choose(house, stranger, reference)
        assert caught.value.code == "unknown_agent"
        assert "careful" not in caught.value.detail
    theirs = await agents.create(house, stranger, agents.NewAgent(name="careful", agent=Agent(name="nop")))
    assert theirs.result.created
    assert (await agents.choose(house, caller, "careful")).id == made.id
