"""In which phase a trial is, from the harness's events, and which phase an exception of its result belongs to."""

import datetime

from workers.dispatcher.harness.model import Phase, PhaseTiming

# Harbor's events, those of patch P3 among them. A pack with steps goes round from agent to verify for each of them.
BEGINS: dict[str, Phase] = {
    "start": "provision",
    "agent-setup-start": "agent_setup",
    "agent-start": "agent",
    "agent-end": "collect",
    "verification-start": "verify",
    "verification-end": "teardown",
    "cancel": "collect",
    "end": "teardown",
}

TIMEOUTS: dict[str, Phase] = {
    "EnvironmentStartTimeoutError": "provision",
    "AgentSetupTimeoutError": "agent_setup",
    "AgentTimeoutError": "agent",
    "VerifierTimeoutError": "verify",
}

# What only one phase can raise. Told by name, since on a busy machine an exception is recorded when the next has begun.
OF_ONE_PHASE: dict[str, Phase] = {
    **TIMEOUTS,
    "NonZeroAgentExitCodeError": "agent",
    "StraysSurvivedError": "verify",
    "AddTestsDirError": "verify",
    "VerifierExitError": "verify",
    "VerifierOutOfMemoryError": "verify",
    "DownloadVerifierDirError": "verify",
    "RewardFileNotFoundError": "verify",
    "RewardFileEmptyError": "verify",
    "VerifierOutputParseError": "verify",
}


class Phases:
    """The timings so far. Times are handed in, in Unix seconds."""

    def __init__(self) -> None:
        self._done: list[PhaseTiming] = []
        self.current: Phase = "provision"
        self._since: float | None = None
        self.step: str | None = None

    def enter(self, phase: Phase, now: float) -> bool:
        """Whether that is a change."""
        if self._since is not None and phase == self.current:
            return False
        self._close(now)
        self.current, self._since = phase, now
        return True

    def _close(self, now: float) -> None:
        if self._since is not None:
            self._done.append(PhaseTiming(self.current, self._since, now))
            self._since = None

    def finish(self, now: float, *, clean: bool) -> tuple[PhaseTiming, ...]:
        """All phases; the last one has no end when the trial did not come to its own."""
        if clean:
            self._close(now)
        elif self._since is not None:
            self._done.append(PhaseTiming(self.current, self._since))
            self._since = None
        return tuple(self._done)

    def at(self, moment: float) -> Phase:
        """The phase at a moment (Unix seconds), by the timings so far."""
        found = self.current
        for timing in self._done:
            if timing.started_at <= moment and (timing.finished_at is None or moment < timing.finished_at):
                found = timing.phase
        return found


def moment(text: str) -> float:
    """Unix seconds of an ISO 8601 time with its zone. Raises ValueError."""
    return datetime.datetime.fromisoformat(text).timestamp()
