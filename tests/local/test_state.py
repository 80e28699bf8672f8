"""Who runs in a home is a question to the kernel."""

import os
import stat
from pathlib import Path

import pytest

from app.local import state
from app.local.errors import AlreadyRunning
from tests.local.waiting import wait_for


def a_state(pid: int) -> state.State:
    return state.State(pid, state.start_ticks(pid), 1.0, "http://127.0.0.1:7070", ready=True, engine="unix:///e")


def test_one_supervisor_a_home_and_the_second_is_told_where_the_first_is(tmp_path: Path) -> None:
    with state.only_one(tmp_path):
        state.save(tmp_path, a_state(os.getpid()))
        with pytest.raises(AlreadyRunning, match=rf"pid {os.getpid()}, http://127.0.0.1:7070.*seatrial down"):
            with state.only_one(tmp_path, patience_seconds=0):
                pass
        assert state.load(tmp_path) == a_state(os.getpid()), "the refused one leaves the state of the other alone"
    assert state.load(tmp_path) is None
    with state.only_one(tmp_path):
        assert state.is_running(tmp_path)


def test_what_a_killed_supervisor_left_behind_does_not_count(tmp_path: Path, program) -> None:
    killed = program(
        "import time; from pathlib import Path; from app.local import state; from tests.local.test_state import a_state\n"
        f"home = Path({str(tmp_path)!r})\n"
        "import os\n"
        "with state.only_one(home):\n"
        "    state.save(home, a_state(os.getpid())); print('up', flush=True); time.sleep(600)"
    )
    assert killed.stdout.readline() == "up\n"
    found = state.load(tmp_path)
    assert found is not None
    assert (found.pid, found.start_ticks) == (killed.pid, state.start_ticks(killed.pid))
    killed.kill()
    killed.wait()
    assert (tmp_path / "run" / "state.json").exists()
    assert state.load(tmp_path) is None
    with state.only_one(tmp_path, patience_seconds=0):
        assert state.load(tmp_path) is None, "the old state is gone before the new one is told"


def test_asking_whether_one_runs_never_keeps_one_from_starting(tmp_path: Path, program) -> None:
    with state.only_one(tmp_path):
        pass
    asking = program(
        "from pathlib import Path; from app.local import state\n"
        f"home = Path({str(tmp_path)!r}); print('asking', flush=True)\n"
        "for _ in range(200000): state.is_running(home)"
    )
    assert asking.stdout.readline() == "asking\n"
    for _ in range(20):
        with state.only_one(tmp_path):
            pass


def test_everything_under_run_is_the_owners_alone(tmp_path: Path) -> None:
    with state.only_one(tmp_path):
        state.save(tmp_path, a_state(os.getpid()))
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
        for path in (tmp_path / "run").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_start_ticks_tell_a_process_from_a_later_one_with_its_pid(program) -> None:
    process = program("import time; print('up', flush=True); time.sleep(600)")
    process.stdout.readline()
    assert state.start_ticks(process.pid) > state.start_ticks(1)
    process.kill()
    process.wait()
    wait_for(lambda: state.start_ticks(process.pid) == 0)
