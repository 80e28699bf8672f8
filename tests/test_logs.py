"""What the operator is told, and what is never told. Each test is a process of its own: logging is configured once in one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app import logs
from app.settings import Settings, SettingsInvalid

ROOT = Path(__file__).parents[1]
START = """
import asyncio, logging, os, sys, threading, warnings
import structlog
from app import logs
from app.settings import Settings
logs.configure(
    Settings(database_url="postgresql://app:sesame%2Fopen@db/x", log_level=LEVEL, log_json=JSON), ["another-secret"]
)
log = structlog.get_logger()
"""


def told(script: str, *, as_json: bool = True, level: str = "info", code: int = 0, **options: object) -> str:
    start = f"LEVEL, JSON = {level!r}, {as_json}\n{START}"
    command = [sys.executable, "-c", start + script]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == code, done.stderr
    return done.stderr


def lines(script: str, **options: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in told(script, **options).splitlines()]  # type: ignore[arg-type]


def test_a_line_is_an_event_with_its_ids() -> None:
    [line] = lines("log.info('trial scored', trial='trl_1', reward=1.0)")
    assert str(line.pop("time")).endswith("Z")
    assert line == {"level": "info", "event": "trial scored", "trial": "trl_1", "reward": 1.0}


def test_people_get_plain_lines() -> None:
    shown = told("log.info('trial scored', trial='trl_1')", as_json=False)
    assert "trial scored" in shown
    assert "trial=trl_1" in shown
    assert "\x1b" not in shown, "no colours where there is no terminal"


def test_bound_ids_stand_on_every_line_from_within_also_in_tasks() -> None:
    script = """
async def work():
    log.info("in a task")
async def main():
    with logs.bound(run="run_1"):
        with logs.bound(trial="trl_1"):
            await asyncio.create_task(work())
        logging.getLogger("nats").warning("from a library")
    log.info("outside")
asyncio.run(main())
"""
    first, second, third = lines(script)
    assert (first["run"], first["trial"]) == ("run_1", "trl_1")
    assert (second["run"], second["library"], second["level"]) == ("run_1", "nats", "warning")
    assert "trial" not in second
    assert "run" not in third


@pytest.mark.parametrize(("level", "expected"), [("debug", 4), ("info", 3), ("Warning", 2), ("error", 1)])
def test_the_level_is_a_threshold(level: str, expected: int) -> None:
    script = "log.debug('a'); log.info('b'); log.warning('c'); log.error('d')"
    assert len(lines(script, level=level)) == expected


def test_an_unknown_level_is_refused_by_name() -> None:
    with pytest.raises(SettingsInvalid, match="SEATRIAL_LOG_LEVEL: one of debug, info"):
        logs.configure(Settings(log_level="loud"))


def test_libraries_speak_from_warnings_on_whatever_the_level() -> None:
    script = """
for name in ("uvicorn.error", "botocore.auth", "asyncio", "some.other"):
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger(name).log(level, "from %s", name)
logging.getLogger("uvicorn.access").error("GET /v1/runs?token=x")
warnings.warn("deprecated")
"""
    found = lines(script, level="debug")
    assert [line["library"] for line in found] == [
        "uvicorn.error",
        "botocore.auth",
        "asyncio",
        "some.other",
        "py.warnings",
    ]


@pytest.mark.parametrize("as_json", [True, False])
def test_no_secret_gets_out_on_any_way(as_json: bool) -> None:
    script = """
secret = "sesame/open"
key = "sk-ant-REDACTME0123456789abcdef"
log.info(f"event {secret}", field=f"x {secret} y", nested={"a": [secret, key]}, quoted="sesame%2Fopen", other="another-secret")
logging.getLogger("uvicorn.error").error("args %s", secret)
warnings.warn(secret)
try:
    raise ValueError(key) from OSError(secret)
except ValueError:
    log.exception("failed")
    logging.getLogger("nats").exception("failed too")
def in_thread():
    raise RuntimeError(secret)
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
async def lost():
    raise RuntimeError(key)
async def main():
    task = asyncio.create_task(lost())
    await asyncio.wait([task])
    del task
asyncio.run(main())
raise RuntimeError(secret)
"""
    shown = told(script, as_json=as_json, code=1)
    assert "sesame" not in shown
    assert "another-secret" not in shown
    assert "REDACTME" not in shown
    assert shown.count("[redacted]") >= 12
    assert shown.count("uncaught error") == 2
    assert "never retrieved" in shown


def test_a_traceback_shows_no_local_variables() -> None:
    script = """
def login(customer):
    raise ValueError("wrong")
try:
    login("LOCAL" + "VALUE")
except ValueError:
    log.exception("failed")
"""
    for as_json in (True, False):
        shown = told(script, as_json=as_json)
        assert "ValueError: wrong" in shown
        assert "LOCALVALUE" not in shown


def test_bodies_headers_and_environments_are_withheld() -> None:
    [line] = lines(
        "log.info('x', body='BODY', headers={'a': 'b'}, env=dict(os.environ), token='t', trial='trl_1', raw=b'1234')"
    )
    assert line["body"] == line["headers"] == line["env"] == line["token"] == "[withheld]"
    assert line["trial"] == "trl_1"
    assert line["raw"] == "[4 bytes]"


def test_what_is_long_is_cut_and_never_in_the_middle_of_a_secret() -> None:
    [line] = lines("log.info('x', text='y' * 1_995 + 'another-secret' + 'z' * 5_000)")
    text = str(line["text"])
    assert len(text) < 2_100
    assert "anoth" not in text
    assert text.endswith("characters)")
    assert len(told("log.info('x', nested=['y' * 1_000] * 1_000)")) < 66_000


def test_nothing_that_is_logged_can_fail_or_steer_the_terminal() -> None:
    script = r"""
log.info("half a character \udc80", number=2**80, nan=float("nan"), key={1: object()}, error=ValueError("x"))
log.info("steer \x1b[2J\x07", field="\x1b[31m")
"""
    first, second = lines(script)
    assert first["number"] == 2**80
    assert second["event"] == "steer \\x1b[2J\\x07"
    shown = told(script, as_json=False)
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_full_disk_or_a_closed_pipe_costs_lines_only() -> None:
    script = "log.info('lost'); logging.getLogger('nats').error('lost too'); os._exit(7)"
    start = f"LEVEL, JSON = 'info', True\n{START}"
    with Path("/dev/full").open("w") as full:
        assert (
            subprocess.run([sys.executable, "-c", start + script], cwd=ROOT, stderr=full, check=False).returncode == 7
        )
    closed = "os.close(2)\n" + script
    assert subprocess.run([sys.executable, "-c", start + closed], cwd=ROOT, check=False).returncode == 7


def test_passwords_are_taken_from_every_url_of_the_settings() -> None:
    settings = Settings(
        database_url="postgresql://app:p%40ss@db/x",
        nats_url="nats://a-token@nats:4222",
        objects_url="s3://bucket?endpoint=http://store",
        docker_host="unix:///var/run/docker.sock",
    )
    assert set(logs.passwords(settings)) == {"p%40ss", "p@ss", "a-token"}
