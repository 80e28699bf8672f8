"""What a log must say of runs, whatever was killed while they ran. Pure: events in, complaints out."""

import collections
from collections.abc import Sequence

import msgspec

from app.domain.events import (
    EvaluationCompleted,
    EvaluationCreated,
    EvidenceOwed,
    EvidenceSealed,
    ExecutionFailed,
    RunCompleted,
    RunRequested,
    Tally,
    TrialAdopted,
    TrialCancelled,
    TrialErrored,
    TrialQueued,
    TrialScored,
    TrialStarted,
)
from app.domain.registry import Event, decode
from app.eventlog.model import Recorded

MADE = TrialQueued | TrialAdopted
ENDS = (TrialScored, TrialErrored, TrialCancelled, TrialAdopted)


class Happened(msgspec.Struct, frozen=True):
    position: int
    stream: str
    event: Event


def happened(recorded: Sequence[Recorded]) -> list[Happened]:
    return [Happened(one.position, one.stream, decode(one.type, one.schema_version, one.data)) for one in recorded]


class History:
    """Everything that happened, by stream."""

    def __init__(self, log: Sequence[Happened]) -> None:
        self.log = log
        self.streams: dict[str, list[Happened]] = collections.defaultdict(list)
        for one in log:
            self.streams[one.stream].append(one)

    def of(self, stream: str, *kinds: type[Event]) -> list[Happened]:
        return [one for one in self.streams[stream] if isinstance(one.event, kinds)]

    def streams_with(self, *kinds: type[Event]) -> list[str]:
        return list(dict.fromkeys(one.stream for one in self.log if isinstance(one.event, kinds)))

    @property
    def trials(self) -> list[str]:
        return self.streams_with(TrialQueued, TrialAdopted)

    def trials_of_run(self, run: str) -> list[str]:
        return [
            trial
            for trial in self.trials
            if isinstance(made := self.streams[trial][0].event, MADE) and made.run_id == run
        ]

    def executions(self, trial: str) -> list[TrialStarted]:
        return [one.event for one in self.of(trial, TrialStarted) if isinstance(one.event, TrialStarted)]

    def executions_of_run(self, run: str) -> list[int]:
        """How many executions each trial of a run had."""
        return [len(self.executions(trial)) for trial in self.trials_of_run(run)]

    def failures_of_run(self, run: str) -> list[str]:
        """Why executions of a run failed: what to say when there should have been none."""
        return [
            f"{trial}: {one.event.failure.code} in {one.event.failure.phase} at {one.position}"
            for trial in self.trials_of_run(run)
            for one in self.of(trial, ExecutionFailed)
            if isinstance(one.event, ExecutionFailed)
        ]

    def end(self, trial: str) -> Event | None:
        ends = self.of(trial, *ENDS)
        return ends[0].event if ends else None

    def unfinished(self) -> list[str]:
        """The runs and the evidence that somebody still has to bring to an end."""
        return [
            *(run for run in self.streams_with(RunRequested) if not self.of(run, RunCompleted)),
            *(owed for owed in self.streams_with(EvidenceOwed) if not self.of(owed, EvidenceSealed)),
        ]


def complaints(history: History) -> list[str]:
    """What is wrong with the runs in the log, all of which have completed. Empty: nothing."""
    found = [f"{one} has not come to its end" for one in history.unfinished()]
    for trial in history.trials:
        found += _of_trial(history, trial)
    counted = collections.Counter(
        end.result.key for trial in history.trials if isinstance(end := history.end(trial), TrialScored)
    )
    found += [f"the result {key} counts {times} times" for key, times in counted.items() if times > 1]
    for evaluation in history.streams_with(EvaluationCreated):
        found += _of_evaluation(history, evaluation)
    for run in history.streams_with(RunRequested):
        found += _of_run(history, run)
    return found


def _of_trial(history: History, trial: str) -> list[str]:
    found: list[str] = []
    running: str | None = None
    ended = started = 0
    known: set[str] = set()
    for one in history.streams[trial]:
        if ended:
            found.append(f"{trial}: {type(one.event).__name__} after its end")
        match one.event:
            case TrialStarted() as event:
                if running is not None:
                    found.append(f"{trial}: execution {event.execution} began while another ran")
                started += 1
                if event.execution != started or event.execution_id in known:
                    found.append(f"{trial}: execution {event.execution} is the {started}. to begin")
                known.add(event.execution_id)
                running = event.execution_id
            case ExecutionFailed() as event:
                if event.execution_id != running:
                    found.append(f"{trial}: an execution failed that did not run")
                running = None
            case TrialScored() as event:
                ended += 1
                if event.execution_id not in known or (event.execution_id != running and not event.recovered):
                    found.append(f"{trial}: scored by an execution that did not run")
                if f"/{event.execution_id}/" not in event.result.key:
                    found.append(f"{trial}: scored with the result of another execution")
            case TrialAdopted() as event:
                ended += 1
                ran = history.end(event.adopted_from)
                if not isinstance(ran, TrialScored) or (ran.reward, ran.execution_id) != (
                    event.reward,
                    event.execution_id,
                ):
                    found.append(f"{trial}: adopts a score that {event.adopted_from} does not have")
            case TrialErrored() | TrialCancelled():
                ended += 1
            case _:
                pass
    if ended != 1:
        found.append(f"{trial}: ended {ended} times")
    return found


def tally(ends: Sequence[Event | None]) -> Tally:
    """How these trials ended."""
    errored = collections.Counter(str(end.failure.fault) for end in ends if isinstance(end, TrialErrored))
    return Tally(
        trials=len(ends),
        scored=sum(isinstance(end, TrialScored | TrialAdopted) for end in ends),
        cancelled=sum(isinstance(end, TrialCancelled) for end in ends),
        errored=dict(errored),
    )


def trials_of(history: History, evaluation: str) -> list[str]:
    return [
        trial
        for trial in history.trials
        if isinstance(first := history.streams[trial][0].event, MADE) and first.evaluation_id == evaluation
    ]


def _of_evaluation(history: History, evaluation: str) -> list[str]:
    created = history.of(evaluation, EvaluationCreated)
    completed = history.of(evaluation, EvaluationCompleted)
    if len(created) != 1 or len(completed) != 1:
        return [f"{evaluation}: created {len(created)} times, completed {len(completed)} times"]
    found: list[str] = []
    trials = trials_of(history, evaluation)
    first, last = created[0].event, completed[0].event
    assert isinstance(first, EvaluationCreated)
    assert isinstance(last, EvaluationCompleted)
    if len(trials) != first.trials:
        found.append(f"{evaluation}: {len(trials)} trials and not {first.trials}")
    counted = tally([history.end(trial) for trial in trials])
    if counted != last.tally:
        found.append(f"{evaluation}: says {last.tally}, and its trials {counted}")
    latest = max((one.position for trial in trials for one in history.of(trial, *ENDS)), default=0)
    if latest > completed[0].position:
        found.append(f"{evaluation}: completed before its last trial had ended")
    sealed = [
        one for one in history.log if isinstance(one.event, EvidenceSealed) and one.event.evaluation_id == evaluation
    ]
    if len(sealed) != 1:
        found.append(f"{evaluation}: its evidence was sealed {len(sealed)} times")
    return found


def _of_run(history: History, run: str) -> list[str]:
    completed = history.of(run, RunCompleted)
    if len(completed) != 1:
        return [f"{run}: completed {len(completed)} times"]
    first, last = history.streams[run][0].event, completed[0].event
    assert isinstance(first, RunRequested)
    assert isinstance(last, RunCompleted)
    ends = [history.end(trial) for trial in history.trials_of_run(run)]
    counted = tally(ends)
    never_made = first.evaluations * first.trials - counted.trials  # of a run that was cancelled while it was expanded
    expected = msgspec.structs.replace(
        counted, trials=counted.trials + never_made, cancelled=counted.cancelled + never_made
    )
    if expected != last.tally:
        return [f"{run}: says {last.tally}, and its trials {expected}"]
    return []
