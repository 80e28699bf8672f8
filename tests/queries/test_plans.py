"""Plans: every query finds its rows by an index, in a database of many teams and many rows."""

import re
from pathlib import Path
from typing import Any

import app.queries
import projections
from app.eventlog.connect import connect, open_pool
from app.queries.snapshot import snapshot
from app.queries.statements import statement
from projections.catalogue import VIEWS
from projections.projector import ROLE
from tests.queries.lives import lived

FOLDER, PROJECTIONS = (Path(str(room.__file__)).parent / "sql" for room in (app.queries, projections))
ROWS, TEAMS = 8_000, 40
MANY = f"""
    insert into views.{{table}}
    select made.*
    from (select s from views.{{table}} as s limit 1) as one(sample), generate_series(1, {ROWS}) as n,
    lateral jsonb_populate_record(sample, jsonb_build_object(
        'position', 1000000 + n, 'team', 'tem_' || n % {TEAMS}, 'number', n,
        'id', left((sample).{{key}}, 4) || lpad(n::text, 26, '0'),
        'run_id', 'run_' || lpad((n / 20)::text, 26, '0'),
        'correlation', 'run_' || lpad((n / 20)::text, 26, '0'),
        'evaluation_id', 'evl_' || lpad((n / 4)::text, 26, '0'),
        'trial_id', 'trl_' || lpad((n / 2)::text, 26, '0'),
        'task_id', 'tsk_' || lpad((n % 100)::text, 26, '0'),
        'status', case when n % 1000 = 0 then 'running' else 'completed' end,
        'agent_name', 'agent ' || n % 30,
        'agent_id', case when n % 3 = 0 then 'agt_' || n % 30 end
    )) as made
"""
ID = "0" * 22 + "4040"
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "count_events_correlated": [("tem_0", "run_" + "0" * 22 + "0101", ["run.completed"], 2_000_000)],
    "get_agent": [("tem_0", f"agt_{ID}"), ("tem_0", "a name")],
    "get_evaluation": [("tem_0", f"evl_{ID}", f"evl_{ID}")],
    "get_execution": [("tem_0", f"exe_{ID}")],
    "get_executions": [("tem_0", f"trl_{ID}")],
    "get_provenance": [("tem_0", f"evl_{ID}")],
    "get_provenances_of_run": [("tem_0", f"run_{ID}")],
    "get_revision": [("tem_0", f"rev_{ID}", f"rev_{ID}~")],
    "get_run": [("tem_0", f"run_{ID}", f"run_{ID}~")],
    "get_run_by_number": [("tem_0", 4040)],
    "get_score": [("tem_0", f"run_{ID}")],
    "get_task": [("tem_0", f"tsk_{ID}"), ("tem_0", "a name")],
    "get_trial": [("tem_0", f"trl_{ID}", f"trl_{ID}")],
    "page_agents": [("tem_0", None, 51), ("tem_0", f"agt_{ID}", 51)],
    "page_evaluations": [
        ("tem_0", 1_004_000, 51, *[None] * 7),
        ("tem_0", 1_004_000, 51, None, f"tsk_{ID}", *[None] * 5),
    ],
    "page_evaluations_of_run": [("tem_0", 0, 51, "run_" + "0" * 22 + "0101", *[None] * 6)],
    "page_events": [("tem_0", 1_004_000, 51, None), ("tem_0", 0, 51, ["run.completed"])],
    "page_events_correlated": [("tem_0", 0, 51, None, "run_" + "0" * 22 + "0101")],
    "page_events_of_stream": [("tem_0", 0, 51, None, f"run_{ID}", 2_000_000)],
    "page_revisions": [("tem_0", 1_004_000, 51, *[None] * 4), ("tem_0", 1_004_000, 51, f"tsk_{ID}", *[None] * 3)],
    "page_runs": [
        ("tem_0", 1_004_000, 51, *[None] * 7),
        ("tem_0", 1_008_000, 51, "running", *[None] * 6),
        ("tem_0", 1_008_000, 51, None, None, "agent 7", *[None] * 4),
        ("tem_0", 1_008_000, 51, None, None, None, f"tsk_{ID}", *[None] * 3),
        ("tem_0", 1_008_000, 51, *[None] * 6, "agt_7"),
    ],
    "page_tasks": [("tem_0", 1_004_000, 51)],
    "page_trials": [
        ("tem_0", 1_004_000, 51, *[None] * 4),
        ("tem_0", 0, 51, "run_" + "0" * 22 + "0101", *[None] * 3),
        ("tem_0", 0, 51, None, f"evl_{ID}", None, None),
        ("tem_0", 0, 51, None, None, "queued", None),
        ("tem_0", 0, 51, None, None, "errored", None),
        ("tem_0", 0, 51, None, None, None, "agent.timed_out"),
    ],
    "read_view_position": [(["view.run", "view.score"],)],
}
SMALL = {"checkpoint", "task n", "task named", "agent a", "agent stored"}
"""Tables of a few rows, which are read whole."""


async def test_queries_and_the_projector_find_their_rows_by_an_index(database: str) -> None:
    assert set(ARGUMENTS) == {path.stem for path in FOLDER.glob("*.sql")}
    await lived(database, 3, 600)
    owner = await connect(database, role=ROLE)
    for view in VIEWS.values():
        table = view.tables[-1]
        await owner.execute(MANY.format(table=table.name, key="stream" if table.name == "timeline" else "id"))
        await owner.execute(f"analyze views.{table.name}")
        # Few beside the rows: for one in eighty, reading the whole table would be as cheap.
        keys = [f"{prefix}_{n:026}" for n in range(20) for prefix in ("run", "trl")]
        loading = await owner.fetch("explain " + table.load("views"), keys)
        assert not [row[0] for row in loading if "Seq Scan" in row[0]], table.name
    await owner.close()
    async with await open_pool(database, max_size=1) as pool, snapshot(pool, list(VIEWS)) as seen:
        for name, calls in ARGUMENTS.items():
            for arguments in calls:
                plan = await seen.connection.fetch("explain " + statement(name), *arguments)
                text = "\n".join(row[0] for row in plan)
                scanned = [line for line in text.splitlines() if "Seq Scan" in line]
                large = [line for line in scanned if not any(f" on {table}" in line for table in SMALL)]
                assert not large, f"{name}{arguments}\n{text}"
                assert seen.connection.is_in_transaction()


def test_every_statement_says_what_its_parameters_are() -> None:
    for folder in (FOLDER, PROJECTIONS):
        for path in folder.glob("*.sql"):
            lines = path.read_text().splitlines()
            header = " ".join(line for line in lines if line.startswith("--"))
            body = " ".join(line for line in lines if not line.startswith("--"))
            assert header, path.name
            for number in set(re.findall(r"\$(\d+)", body)):
                assert f"${number} " in header, (path.name, number)
