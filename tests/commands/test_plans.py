"""The statements of the commands find their rows by index, also when there are many."""

import pytest

from app.boot import House
from app.commands.caller import Caller
from app.commands.statements import statement
from app.eventlog.connect import connect

FILL = """
insert into seatrial.task (id, team, name)
select 'tsk_0' || lpad(n::text, 25, '0'), $1, 'task-' || n from generate_series(1, 20000) as n;
"""
STORE = """
insert into seatrial.agent (id, team, name, definition, digest, created_by)
select 'agt_0' || lpad(n::text, 25, '0'), $1, 'agent-' || n, '{}', sha256('{}'), 'key_x' from generate_series(1, 20000) as n;
"""
RESERVE = """
insert into eventlog.reservation (scope, key, holder)
select 'revision', 'tsk_0' || lpad(n::text, 25, '0') || '/sha256:' || n, 'rev_' || n from generate_series(1, 20000) as n;
"""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("find_tasks", ["team", ["task-1", "task-2", "tsk_0" + "0" * 24 + "3"]]),
        ("latest_revisions", [["tsk_0" + "0" * 24 + "3"]]),
        ("read_streams", ["team", ["rev_1", "rev_2"]]),
        ("find_upload", ["team", "upl_1"]),
        ("find_answer", ["team", "key"]),
        ("find_roster", [b"x"]),
        ("read_epoch", ["trl_1"]),
        ("find_agent", ["team", "agent-7"]),
        ("names_of_agents", ["team", 1000]),
    ],
)
async def test_no_statement_reads_a_whole_table(house: House, caller: Caller, name: str, arguments: list) -> None:
    owner = await connect(house.settings.database_url, role=None)
    try:
        await owner.execute(FILL.replace("$1", f"'{caller.team}'"))
        await owner.execute(STORE.replace("$1", f"'{caller.team}'"))
        await owner.execute(RESERVE)
        await owner.execute("analyze seatrial.task; analyze seatrial.agent; analyze eventlog.reservation")
        await owner.execute("set enable_seqscan = off")
        given = [caller.team if argument == "team" else argument for argument in arguments]
        plan = "\n".join(row[0] for row in await owner.fetch("explain " + statement(name), *given))
    finally:
        await owner.close()
    assert "Seq Scan" not in plan, plan
    if name == "latest_revisions":
        assert "key >= " in plan.partition("reservation")[2].partition("Index Cond")[2], plan
