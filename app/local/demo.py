"""`make demo`: one run from nothing, as a user would do it, saying what it does.

Starts the server unless one runs, makes the example's base image where no registry can be reached, runs the example with
Harbor's oracle agent through the command line, then fetches the archive and checks it offline. On a terminal a server that was
started here goes on; otherwise it is stopped.
"""

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import app
from app import settings as settings_module
from app.images import dockerfile
from app.local import baseimage, engine, state
from app.local.errors import LocalError, NotRunning
from app.local.report import Report, to_terminal
from app.local.supervisor import import_path
from app.local.up import down, up_detached
from app.settings import Settings

EXAMPLE = "hello-world"
SCORE = 1.0
"""What the oracle agent, which carries out the pack's own solution, must get."""


class DemoFailed(LocalError):
    """The run did not end as it must. The message says how it ended; the lines above it say more."""


def example() -> Path:
    """The example pack: in the package when installed, beside it in a checkout."""
    package = Path(app.__file__).parent
    installed = package / "_examples" / EXAMPLE
    return installed if installed.is_dir() else package.parent / "examples" / EXAMPLE


def demo(settings: Settings, report: Report) -> None:
    """Raises LocalError when a step fails."""
    started = time.monotonic()
    report.say("Seatrial: push examples/hello-world, build it, run it with Harbor's oracle agent, prove the score.")
    fresh = not state.is_running(settings.home_path)
    if fresh:
        up_detached(settings, report, ask=engine.confirm if sys.stdin.isatty() else None)
    running = state.load(settings.home_path)
    if running is None:
        raise NotRunning("The server went away; see its logs, and try again.")
    try:
        _base_images(settings, report)
        _command("run", os.path.relpath(example()), "-a", "oracle")
        number = _newest_run(running.url, settings)["number"]
        _command("verify", f"seatrial-run-{number}.tar.zst")
        report.say(f"demo done after {time.monotonic() - started:.1f} s")
        report.say(f"  API   {running.url}/v1      docs {running.url}/docs")
        if fresh and sys.stdout.isatty():
            report.say("  the server goes on; stop it with `make down`")
            report.say(f"  next  {_command_line()} run FOLDER -a oracle; {_command_line()} runs show {number}")
    finally:
        if fresh and not sys.stdout.isatty():
            down(settings, report)


def _base_images(settings: Settings, report: Report) -> None:
    found = engine.find(settings)
    if found is None:
        raise NotRunning("The container engine went away; start it again.")
    names = dockerfile.read((example() / "environment" / "Dockerfile").read_text()).images
    with report.step("base image") as step:
        for name in names:
            baseimage.ensure_image(found, name, progress=step.progress)
        step.detail = ", ".join(names)


def _command(*arguments: str) -> None:
    """Run our command line as a user would, its output straight to this terminal."""
    sys.stdout.write(f"$ seatrial {' '.join(arguments)}\n")
    sys.stdout.flush()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "app", *arguments], env={**os.environ, "PYTHONPATH": import_path()}, check=False
    )
    if done.returncode != 0:
        raise DemoFailed(f"`seatrial {arguments[0]}` ended with exit {done.returncode}; the lines above say why.")


def _command_line() -> str:
    """Our command as one types it here: it lies in a virtual environment that the shell may know nothing of."""
    return os.path.relpath(Path(sys.executable).parent / "seatrial")


def _newest_run(url: str, settings: Settings) -> dict[str, Any]:
    """The run that `seatrial run` just followed to its end. Raises DemoFailed unless it scored what it must."""
    run: dict[str, Any] = json.loads(_fetch(url, settings, "/v1/runs?page_size=1"))["items"][0]
    score = (run.get("score") or {}).get("mean")
    if score != SCORE:
        raise DemoFailed(
            f"The oracle agent must score {SCORE} and got {score}; see `seatrial runs show {run['number']}`."
        )
    return run


def _fetch(url: str, settings: Settings, path: str) -> bytes:
    address = urlsplit(url)
    client = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=60)
    key = state.key_file(settings.home_path).read_text().strip()
    try:
        client.request("GET", path, headers={"Authorization": f"Bearer {key}"})
        answer = client.getresponse()
        body = answer.read()
    except OSError as error:
        raise NotRunning(f"The API at {url} went away ({error}); see its logs.") from error
    finally:
        client.close()
    if answer.status != 200:
        raise DemoFailed(f"GET {path} answered {answer.status}; see the API's log.")
    return body


def main() -> int:
    report = Report(to_terminal)
    try:
        demo(settings_module.load(), report)
    except (LocalError, settings_module.SettingsInvalid) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
