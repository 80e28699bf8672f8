"""`seatrial admin projections`, as an operator uses it."""

import asyncio
import importlib.metadata
import io
import json
import random
from pathlib import Path

from app.settings import Settings
from projections.admin import NOT_DONE, UNWELL, WELL, command
from projections.catalogue import VIEWS
from tests.projections.histories import history
from tests.projections.projecting import project, projector, write, writer
from tests.projections.test_batch import strange


async def run(url: str, *argv: str) -> tuple[int, str]:
    """In a thread of its own: the command has an event loop of its own."""
    out = io.StringIO()
    code = await asyncio.to_thread(command, Settings(database_url=url), list(argv), out)
    return code, out.getvalue()


async def test_status_shows_every_view_and_what_halted(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(1), 50).units)
        poison = await write(log, [strange("evidence.started", b"{}", category="evidence")])
        await project(connection)
        code, text = await run(database, "status")
        assert code == UNWELL
        assert "projector  not running" in text
        assert all(name in text for name in VIEWS)
        assert f"HALTED before {poison} (evidence.started" in text
        code, text = await run(database, "--json", "status")
        views = {one["view"]: one for one in json.loads(text)["views"]}
        assert views["provenance"]["halted"]["error_code"] == "event_malformed"
        assert views["timeline"]["behind"] == 0


async def test_rebuild_and_verify_say_what_they_found(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        last = await write(log, history(random.Random(1), 150).units)
        assert not await project(connection)
        code, text = await run(database, "verify", "all")
        assert code == WELL
        assert text.count("equal to the log") == len(VIEWS)
        await connection.execute("update views.task set ready = ready + 7")
        code, text = await run(database, "verify", "task")
        assert code == UNWELL
        assert "ready: " in text
        code, text = await run(database, "rebuild", "task", "run")
        assert code == WELL
        assert text.count(f"up to {last}") == 2
        code, text = await run(database, "rebuild", "--all")
        assert code == WELL
        assert text.count(f"up to {last}") == len(VIEWS)
        code, text = await run(database, "verify", "task", "--json")  # before or after the word
        assert code == WELL
        assert json.loads(text)["different"] == 0


async def test_what_cannot_be_done_says_so(database: str, tmp_path: Path) -> None:
    for names in (["nonsense"], ["run", "nonsense"], []):
        code, text = await run(database, "rebuild", *names)
        assert code == NOT_DONE
        assert "--all" in text
    out = io.StringIO()
    assert command(Settings(home=str(tmp_path)), ["status"], out) == NOT_DONE
    assert "seatrial up" in out.getvalue()
    code, text = await run("postgresql://127.0.0.1:1/none", "status")
    assert code == NOT_DONE
    assert "database" in text
    async with writer(database) as log:
        await write(log, [strange("trial.admitted", b"{}")])
        code, text = await run(database, "verify", "trial")
        assert code == WELL  # nothing is projected yet: it is judged where it is
        async with projector(database) as connection:
            await project(connection)
        code, text = await run(database, "rebuild", "trial")
        assert code == UNWELL
        assert "inconsistent: trial.admitted" in text


def test_the_command_is_found_by_its_entry_point() -> None:
    [found] = [one for one in importlib.metadata.entry_points(group="seatrial.admin") if one.name == "projections"]
    assert found.load() is command
