"""From the rows of the views to what the API shows (answers.py)."""

from typing import Any

import msgspec

from app.http import answers
from app.queries import evaluations, revisions, runs, scores, tasks, trials


def score(row: scores.Score | None) -> answers.Score | None:
    if row is None:
        return None
    return shape(answers.Score, row, coverage=row.coverage, pass_at_1=row.pass_at(1) if row.scored else None)


def task(row: tasks.Task) -> answers.Task:
    return shape(answers.Task, row)


def revision(row: revisions.Revision) -> answers.Revision:
    return shape(
        answers.Revision,
        row,
        message=row.text.get("message"),
        errors=_pack_errors(row.text.get("errors")),
        warnings=_strings(row.text.get("warnings")),
        warning_count=row.warnings,
        events_url=f"/v1/revisions/{row.id}/events",
        logs_url=f"/v1/revisions/{row.id}/logs",
    )


def run(row: runs.Run) -> answers.Run:
    url = f"/v1/runs/{row.id}"
    return shape(
        answers.Run,
        row,
        counts=shape(answers.Counts, row),
        score=score(row.score),
        url=url,
        events_url=f"{url}/events",
        logs_url=f"{url}/logs",
        archive_url=f"{url}/archive",
    )


def evaluation(row: evaluations.Evaluation) -> answers.Evaluation:
    return shape(
        answers.Evaluation,
        row,
        counts=shape(answers.Counts, row),
        score=score(row.score),
        archive_url=f"/v1/evaluations/{row.id}/archive",
    )


def trial(row: trials.Trial) -> answers.Trial:
    url = f"/v1/trials/{row.id}"
    return shape(
        answers.Trial,
        row,
        timings_ms=row.result.timings_ms if row.result else {},
        events_url=f"{url}/events",
        logs_url=f"{url}/logs",
        artifacts_url=f"{url}/artifacts",
    )


def execution(row: trials.Execution) -> answers.Execution:
    return shape(answers.Execution, row)


def shape[T: msgspec.Struct](kind: type[T], row: msgspec.Struct, **given: Any) -> T:
    """A Struct with what is given, and the fields of `row` of the same names."""
    taken = {name: getattr(row, name) for name in kind.__struct_fields__ if name not in given}
    return kind(**taken, **given)


def _pack_errors(text: str | None) -> tuple[answers.PackError, ...]:
    return msgspec.json.decode(text, type=tuple[answers.PackError, ...]) if text else ()


def _strings(text: str | None) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...]) if text else ()
