"""The supervisor with real processes: roles of a plugin that the test installs, as any plugin would be."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.local.process import load
from app.local.supervisor import GROUPS, Bell, Group, Process, Supervisor, bell, groups_of, import_path
from tests.local.waiting import is_alive, wait_for
from workers.dispatcher.harness.telling import CLOSE_SECONDS
from workers.dispatcher.harness.trial import GONE_SECONDS, GRACE_SECONDS

ROLES = """
import asyncio, os, pathlib

def note(name, text):
    with open(pathlib.Path(os.environ["NOTES"]) / name, "a") as file:
        file.write(text + "\\n")

async def steady(settings, stop):
    note("steady", f"start {settings.instance}")
    await stop.wait()
    note("steady", "stop")
    note("order", "steady")

async def worker(settings, stop):
    note("worker", "start")
    await stop.wait()
    await asyncio.sleep(0.2)
    note("order", "worker")

async def faulty(settings, stop):
    note("faulty", "start")
    raise ValueError("no good")

async def leaving(settings, stop):
    note("leaving", "start")

async def stubborn(settings, stop):
    note("stubborn", "start")
    while True:
        await asyncio.sleep(0.05)
"""
ENTRY_POINTS = "[seatrial.processes]\n" + "".join(
    f"{name} = probe_roles:{name}\n" for name in ("steady", "worker", "faulty", "leaving", "stubborn")
)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    folder = tmp_path / "plugin"
    metadata = folder / "probe-1.dist-info"
    metadata.mkdir(parents=True)
    (folder / "probe_roles.py").write_text(ROLES)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


type Make = Callable[..., tuple[Supervisor, list[Process], list[str]]]


@pytest.fixture
def make(plugin: Path, notes: Path, tmp_path: Path) -> Iterator[Make]:
    """A supervisor of processes with the given groups; whatever still runs at the end is killed."""
    made: list[Process] = []

    def supervisor(*groups: Group, drain_seconds: float = 5.0) -> tuple[Supervisor, list[Process], list[str]]:
        processes = [Process(group, tmp_path) for group in groups]
        made.extend(processes)
        said: list[str] = []
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "NOTES": str(notes),
            "PYTHONPATH": os.pathsep.join([str(plugin), import_path()]),
            "SEATRIAL_INSTANCE": "probe",
        }
        made_supervisor = Supervisor(
            {}, processes, environment=lambda: environment, drain_seconds=drain_seconds, say=said.append
        )
        return made_supervisor, processes, said

    yield supervisor
    for process in made:
        process.send(signal.SIGKILL)


def lines(notes: Path, name: str) -> list[str]:
    path = notes / name
    return path.read_text().splitlines() if path.exists() else []


def turn_until(supervisor: Supervisor, condition: Callable[[], bool]) -> None:
    def turned() -> bool:
        supervisor.turn()
        return condition()

    wait_for(turned)


def test_a_killed_process_is_started_again_and_the_reason_is_said(make: Make, notes: Path) -> None:
    supervisor, [process], said = make(Group("steady", ("steady",), 1))
    supervisor.start_processes()
    wait_for(lambda: lines(notes, "steady") == ["start probe"])
    os.kill(process.pid, signal.SIGKILL)
    turn_until(supervisor, lambda: lines(notes, "steady") == ["start probe"] * 2)
    assert supervisor.processes()[0].restarts == 1
    assert supervisor.processes()[0].last_exit == -signal.SIGKILL
    assert "SIGKILL" in said[0]


@pytest.mark.parametrize("role", ["faulty", "leaving"])
def test_a_role_that_fails_or_leaves_ends_its_process_and_comes_back_ever_later(
    make: Make, notes: Path, role: str
) -> None:
    supervisor, [process], said = make(Group("group", ("steady", role), 1))
    supervisor.start_processes()
    turn_until(supervisor, lambda: len(lines(notes, role)) == 3)
    assert process.last_exit == 1
    assert lines(notes, "steady").count("stop") >= 2, "the other role was told to stop"
    assert [line for line in said if "again in 0.0 s" in line] == said[:1]
    assert "again in 0.5 s" in said[1]
    assert role in process.log.read_text()


def test_the_stop_goes_stage_by_stage_and_waits_for_running_work(make: Make, notes: Path) -> None:
    supervisor, processes, said = make(Group("steady", ("steady",), 2), Group("worker", ("worker",), 1))
    supervisor.start_processes()
    wait_for(lambda: bool(lines(notes, "steady") and lines(notes, "worker")))
    with bell() as ringing:
        supervisor.stop(ringing)
    assert lines(notes, "order") == ["worker", "steady"]
    assert [process.pid for process in processes] == [0, 0]
    assert said == []


def test_a_second_signal_ends_the_patience(make: Make, notes: Path) -> None:
    supervisor, [process], said = make(Group("stubborn", ("stubborn",), 1), drain_seconds=600)
    supervisor.start_processes()
    wait_for(lambda: bool(lines(notes, "stubborn")))
    with bell() as ringing:
        os.kill(os.getpid(), signal.SIGTERM)
        supervisor.watch(ringing)
        os.kill(os.getpid(), signal.SIGINT)
        supervisor.stop(ringing)
    wait_for(lambda: process.pid == 0)
    assert "killed" in said[0]


def test_a_process_that_does_not_end_in_time_is_killed(make: Make, notes: Path) -> None:
    supervisor, [process], said = make(Group("stubborn", ("stubborn",), 1, ending_seconds=0.1), drain_seconds=0.1)
    supervisor.start_processes()
    wait_for(lambda: bool(lines(notes, "stubborn")))
    with bell() as ringing:
        supervisor.stop(ringing)
    wait_for(lambda: process.pid == 0)
    assert "killed" in said[0]


@pytest.mark.parametrize(("ending_seconds", "order"), [(0.0, []), (60.0, ["worker"])])
def test_a_group_may_take_its_own_time_beyond_the_drain(
    make: Make, notes: Path, ending_seconds: float, order: list[str]
) -> None:
    """As the dispatcher does, which stops what still runs when the drain is over, and records that."""
    group = Group("worker", ("worker",), 1, ending_seconds=ending_seconds)
    supervisor, [process], said = make(group, drain_seconds=0.01)
    supervisor.start_processes()
    wait_for(lambda: bool(lines(notes, "worker")))
    with bell() as ringing:
        supervisor.stop(ringing)
    wait_for(lambda: process.pid == 0)
    assert (lines(notes, "order"), bool(said)) == (order, not order)


def test_the_dispatcher_has_the_time_that_stopping_a_trial_takes() -> None:
    [dispatcher] = [group for group in groups_of(["dispatcher", "reaper"]) if "dispatcher" in group.roles]
    assert dispatcher.ending_seconds > GRACE_SECONDS + 2 * GONE_SECONDS + CLOSE_SECONDS


def test_no_process_survives_a_killed_supervisor(program, plugin: Path, notes: Path, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "NOTES": str(notes),
        "PYTHONPATH": f"{plugin}{os.pathsep}{import_path()}",
    }
    parent = program(
        "from pathlib import Path; import time\n"
        "from app.local.supervisor import Group, Process\n"
        f"process = Process(Group('stubborn', ('stubborn',), 1), Path({str(tmp_path)!r}))\n"
        f"process.start({environment!r}); print(process.pid, flush=True); time.sleep(600)"
    )
    pid = int(parent.stdout.readline())
    wait_for(lambda: bool(lines(notes, "stubborn")))
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_alive(pid))


def test_an_unknown_role_ends_at_once_and_names_the_known_ones(make: Make) -> None:
    supervisor, [process], _ = make(Group("typo", ("stedy",), 1))
    supervisor.start_processes()
    wait_for(lambda: process.poll() is not None)
    assert process.poll() == 2
    assert "no such process: stedy" in process.log.read_text()
    assert "steady" in process.log.read_text()


def test_a_log_that_grew_too_long_is_cut_and_its_writer_goes_on(
    make: Make, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.local.supervisor.LOG_LIMIT_BYTES", 1)
    supervisor, [process], _ = make(Group("group", ("faulty",), 1))
    supervisor.start_processes()
    turn_until(supervisor, lambda: len(lines(notes, "faulty")) == 2)
    supervisor._trim_logs()
    kept = process.log.with_name(f"{process.log.name}.1")
    assert "no good" in kept.read_text()
    turn_until(supervisor, lambda: len(lines(notes, "faulty")) == 3 and "no good" in process.log.read_text())
    assert not process.log.read_bytes().startswith(b"\0")


def test_every_installed_role_belongs_to_exactly_one_group() -> None:
    roles = [role for group in GROUPS for role in group.roles]
    assert len(roles) == len(set(roles))
    groups = groups_of([*roles, "extra"])
    assert [role for group in groups for role in group.roles] == [*roles, "extra"]
    assert groups_of(["api", "clock"]) == [Group("api", ("api",), 3), Group("foreman", ("clock",), 2)]


def test_signals_become_facts_and_the_old_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with bell() as ringing:
        os.kill(os.getpid(), signal.SIGHUP)
        ringing.wait(86_400)  # ends with the signal, or never within the test's own limit
        assert (ringing.stop, ringing.hurry) == (True, False)
    assert signal.getsignal(signal.SIGTERM) is before
    assert isinstance(ringing, Bell)


def test_loading_no_role_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="none named"):
        load([])
