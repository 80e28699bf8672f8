"""`seatrial run`: push and build when needed, start the run, follow it, print the score, fetch the evidence."""

import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click

from app.cli import packs, show
from app.cli.agents import meant
from app.cli.client import ApiError, Client, connect
from app.cli.pairs import pairs

EXIT = {"succeeded": 0, "failed": 1, "cancelled": 1}


@click.command()
@click.argument("what", nargs=-1, required=True)
@click.option("-a", "--agent", default="oracle", show_default=True, help="The agent: a name, or package.module:Class.")
@click.option("-m", "--model", help="The model that the agent uses.")
@click.option("-k", "--trials", type=click.IntRange(1, 100), default=1, show_default=True, help="Trials per task.")
@click.option("--agent-version", help="The agent's version.")
@click.option(
    "--setting", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the agent; JSON or text."
)
@click.option("--name", help="A name for the run.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the run.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, help="Higher is admitted first.")
@click.option("--deadline", type=click.IntRange(1), metavar="SECONDS", help="Cancel the run when it takes longer.")
@click.option("--detach", "-d", is_flag=True, help="Return when the run is accepted.")
@click.option(
    "--logs/--no-logs", default=None, help="Print the trials' output as it comes (default: of a single trial)."
)
@click.option("--archive/--no-archive", default=True, help="Fetch the evidence at the end, into this folder.")
@show.as_json
def run(
    what: tuple[str, ...], agent: str, model: str | None, trials: int, agent_version: str | None,
    settings: tuple[str, ...], name: str | None, labels: tuple[str, ...], priority: int, deadline: int | None,
    detach: bool, logs: bool | None, archive: bool, json_: bool,
) -> None:  # fmt: skip
    """Run AGENT on WHAT: folders with task packs (they are pushed and built), or names of tasks.

    AGENT is one that was stored (`seatrial agents`), else one of the harness, else a class of one's own.

    The exit code is 0 when something scored, 1 when nothing did or the run was cancelled.
    """
    asked: dict[str, Any] = {
        "agent": meant(agent, model, agent_version, settings),
        "trials": trials,
        "priority": priority,
        "labels": pairs(labels),
    }
    asked |= {"name": name} if name else {}
    asked |= {"deadline_seconds": deadline} if deadline else {}
    folders = [folder for one in what if Path(one).is_dir() for folder in packs.find(Path(one))]
    named = [one for one in what if not Path(one).is_dir()]
    for one in named:
        if "/" in one or Path(one).exists():  # no task has such a name
            raise click.ClickException(packs.missing(one))
    client = connect(start=True, quiet=json_)
    status = show.Status(quiet=json_)
    # an agent that cannot be, or that cannot work, is told before packs are built for it
    if (warning := client.post("/v1/runs/check-agent", {"agent": asked["agent"]})["warning"]) is not None:
        click.echo(f"Warning: {warning}", err=True)
    asked["tasks"] = [*_built(client, folders, status, quiet=json_), *named]
    started = time.monotonic()
    try:
        made = client.post("/v1/runs", asked)
    except ApiError as error:
        raise _explained(client, error, asked["tasks"]) from error
    if detach:
        _accepted(client, made, json_=json_)
        return
    follower = Follower(
        client, made, status, quiet=json_, logs=made["trials"] * made["evaluations"] == 1 if logs is None else logs
    )
    follow_or_leave(follower)
    ended = client.get(f"/v1/runs/{made['id']}")
    evidence = _fetch(client, ended) if archive else None
    seconds = time.monotonic() - started
    if json_:
        show.document(ended | {"evidence": evidence, "seconds": round(seconds, 3)})
    else:
        status.say(summary(ended, seconds, evidence))
        for reason in _reasons(client, ended):
            status.say(reason)
    sys.exit(EXIT.get(ended["outcome"], 1))


def follow_or_leave(follower: "Follower") -> None:
    """Ctrl-C ends the following, not the run, and this command with it."""
    try:
        follower.follow()
    except KeyboardInterrupt:
        number = follower.made["number"]
        follower.status.note(
            f"run {number} goes on; `seatrial runs events -f {number}` follows it, `seatrial runs cancel {number}` ends it"
        )
        sys.exit(130)


class Follower:
    """Prints what happens in a run until nothing more can: its trials' ends, and their output if wished."""

    def __init__(self, client: Client, made: dict[str, Any], status: show.Status, *, quiet: bool, logs: bool) -> None:
        self.client, self.made, self.status, self.quiet, self.logs = client, made, status, quiet, logs
        self.total = made["trials"] * made["evaluations"]
        self.ended = 0
        self._began = time.monotonic()
        self._ordinals: dict[str, str] = {}
        self._running: dict[str, str] = {}
        self._lock = threading.Lock()
        self._over = False

    def follow(self) -> None:
        if not self.quiet:
            plural = "" if self.total == 1 else "s"
            self.status.say(
                f"run {self.made['number']}   {self.total} trial{plural}  {self.client.url}/v1/runs/{self.made['number']}"
            )
        if self.logs and not self.quiet:
            threading.Thread(target=self._follow_logs, name="logs", daemon=True).start()
        if self.status.live and not self.quiet:
            threading.Thread(target=self._tick, name="tick", daemon=True).start()
        try:
            for event in self.client.stream(f"/v1/runs/{self.made['id']}/events"):
                with self._lock:
                    self._see(event.data)
        finally:
            with self._lock:
                self._over = True
                self.status.clear()

    def _see(self, event: dict[str, Any]) -> None:
        kind, subject, data = _type(event), event["subject"], event["data"]
        match kind:
            case "trial.queued":
                self._number(subject, data["ordinal"])
            case "trial.adopted":
                self._number(subject, data["ordinal"])
                self._end(subject, f"adopted, scored {show.reward(data['reward'])}")
            case "trial.started":
                self._running[subject] = "started"
            case "trial.phase_entered":
                self._running[subject] = data["phase"]
            case "trial.execution_failed":
                self._running.pop(subject, None)
                self._say(subject, f"try {data['execution']} failed: {show.failure(data['failure'])}; another follows")
            case "trial.scored":
                note = f"  (in spite of {data['failure']['code']})" if data.get("failure") else ""
                self._end(subject, f"scored {show.reward(data['reward'])}{note}")
            case "trial.errored":
                self._end(subject, f"errored: {show.failure(data['failure'])}")
            case "trial.cancelled":
                self._end(subject, "cancelled")
            case _:
                pass
        self._set_status()

    def _set_status(self) -> None:
        if not self.quiet and not self._over and self.ended < self.total:
            phases = [phase for phase in ("started", *show.PHASES) if phase in self._running.values()]
            seconds = time.monotonic() - self._began
            ended = f"{self.ended}/{self.total} ended" if self.total > 1 else ""
            running = f"{len(self._running)} running" if self._running or self.ended else "waiting for a slot"
            self.status.set("  ".join(filter(None, [ended, running, " ".join(phases), f"{seconds:.0f} s"])))

    def _tick(self) -> None:
        """The time that passes, while nothing else does."""
        while not self._over:
            with self._lock:
                self._set_status()
            time.sleep(1)

    def _number(self, subject: str, ordinal: int) -> None:
        several = self.made["evaluations"] > 1
        prefix = f"{len(self._ordinals) // self.made['trials'] + 1}." if several else ""
        self._ordinals[subject] = f"{prefix}{ordinal}"

    def _end(self, subject: str, words: str) -> None:
        self._running.pop(subject, None)
        self.ended += 1
        self._say(subject, words)

    def _say(self, subject: str, words: str) -> None:
        if not self.quiet:
            self.status.say(f"trial {self._ordinals.get(subject, subject)} {words}")

    def _follow_logs(self) -> None:
        with contextlib.suppress(ApiError):
            for event in self.client.stream(f"/v1/runs/{self.made['id']}/logs"):
                for line in event.data["text"].splitlines():
                    with self._lock:
                        self.status.say(f"  {event.data['phase']:<8} {line}", show.dim)


def summary(run: dict[str, Any], seconds: float, evidence: str | None) -> str:
    """The one line at the end: score, coverage, time, where to look."""
    score = run["score"] or {}
    trials = score.get("trials") or run["trials"] * run["evaluations"]
    parts = [f"score {show.number(score.get('mean'))}", f"scored {score.get('scored', 0)}/{trials}", f"{seconds:.1f} s"]
    errored = score.get("errored") or {}
    if errored:
        parts.insert(2, "errored " + ", ".join(f"{count} ({fault})" for fault, count in sorted(errored.items())))
    if score.get("cancelled"):
        parts.insert(2, f"cancelled {score['cancelled']}")
    if run["adopted"]:
        parts.insert(-1, f"adopted {run['adopted']}, ran {sum(run['counts'].values()) - run['adopted']}")
    return "   ".join([*parts, *([f"evidence {evidence}"] if evidence else [])])


def _built(client: Client, folders: list[Path], status: show.Status, *, quiet: bool) -> list[dict[str, str]]:
    """Push every pack, then wait for all of them. Raises ClickException when one of them cannot run."""
    started = time.monotonic()
    made: list[dict[str, str]] = []
    for one in packs.push_all(client, folders, status):
        if one.error is not None:
            if len(folders) == 1:
                raise one.error
            status.note(f"error: {one.folder}: {one.error.format_message()}")
            continue
        ready = one.revision
        assert ready is not None
        took = "built before" if one.known else f"{time.monotonic() - started:.1f} s"
        if not quiet:
            several = f"{ready['task_name']}  " if len(folders) > 1 else ""
            status.say(f"build   {several}{show.short(ready['image']['digest'])}  {took}")
            status.warn(ready["warnings"])
        made.append({"task": ready["task_id"], "revision": ready["id"]})
    if len(made) < len(folders):
        refused = len(folders) - len(made)
        raise click.ClickException(f"{refused} of {len(folders)} packs were refused, so nothing was run")
    return made


def _explained(client: Client, error: ApiError, tasks: list[Any]) -> click.ClickException:
    """A name that is no task may have been meant as a folder, or be misspelt."""
    if error.code != "task_not_found":
        return error
    there = [str(one["name"]) for one in client.pages("/v1/tasks", limit=1000) if one["name"]]
    lines: list[str] = []
    for wrong in error.problem.get("errors") or ():
        name = tasks[int(str(wrong["pointer"]).rpartition("/")[2])]
        folders = [path.name for path in Path().iterdir() if (path / packs.TASK_FILE).is_file()]
        near = packs.nearest(name, [*there, *folders])
        hint = f"did you mean {near}?" if near else "`seatrial tasks list` says which there are"
        lines.append(f"there is no folder {name} here, and no task of this name; {hint}")
    return click.ClickException("\n  ".join(lines)) if lines else error


def _accepted(client: Client, made: dict[str, Any], *, json_: bool) -> None:
    if json_:
        show.document(made)
    else:
        click.echo(f"run {made['number']}   {client.url}/v1/runs/{made['number']}")
        click.echo(f"follow it with `seatrial runs events -f {made['number']}`")


def _fetch(client: Client, run: dict[str, Any]) -> str | None:
    suffix = "tar.zst" if run["evaluations"] == 1 else "tar"
    path = packs.outside() / f"seatrial-run-{run['number']}.{suffix}"
    try:
        client.download(f"/v1/runs/{run['id']}/archive", path)
    except ApiError as error:
        click.echo(f"the evidence could not be fetched: {error.message}", err=True)
        return None
    except OSError as error:
        click.echo(f"{path}: {error.strerror}; fetch it with `seatrial runs archive {run['number']}`", err=True)
        return None
    return str(path)


def _reasons(client: Client, run: dict[str, Any]) -> list[str]:
    """Why trials errored: the first of each failure, with what it said."""
    if not (run["score"] or {}).get("errored"):
        return []
    seen: dict[str, str] = {}
    for one in client.pages(f"/v1/runs/{run['id']}/trials", status="errored", limit=200):
        code = one["failure"]["code"]
        message = (one.get("message") or "").strip().splitlines()
        seen.setdefault(code, f"  {code}: {message[0] if message else ''}  (seatrial trials show {one['id']})")
    return list(seen.values())


def _type(event: dict[str, Any]) -> str:
    """trial.scored of seatrial.trial.scored.v1."""
    return event["type"].removeprefix("seatrial.").rpartition(".v")[0]
