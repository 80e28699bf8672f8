"""All views."""

from projections import evaluation, execution, provenance, revision, run, score, task, timeline, trial
from projections.view import View

VIEWS: dict[str, View] = {
    room.VIEW.name: room.VIEW
    for room in (task, revision, run, evaluation, trial, execution, score, provenance, timeline)
}
