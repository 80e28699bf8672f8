"""Harbor's result read as data: rewards, exceptions with their phases. Pure; the bytes come from a trial's folder."""

import math
from collections.abc import Callable

import msgspec

from workers.dispatcher.harness.model import Phase, TrialException
from workers.dispatcher.harness.phases import OF_ONE_PHASE, moment

MESSAGE_LIMIT = 4000


class ResultInvalid(ValueError):
    """result.json is not what Harbor 0.26.0 writes."""


class _Timing(msgspec.Struct):
    started_at: str | None = None
    finished_at: str | None = None


class _Exception(msgspec.Struct):
    exception_type: str
    exception_message: str
    occurred_at: str


class _Rewards(msgspec.Struct):
    rewards: dict[str, float] | None = None


class _Step(msgspec.Struct):
    step_name: str
    exception_info: _Exception | None = None
    agent_execution: _Timing | None = None
    verifier: _Timing | None = None


class _Result(msgspec.Struct):
    id: str
    verifier_result: _Rewards | None = None
    exception_info: _Exception | None = None
    environment_setup: _Timing | None = None
    agent_setup: _Timing | None = None
    agent_execution: _Timing | None = None
    verifier: _Timing | None = None
    step_results: list[_Step] | None = None


class Reading(msgspec.Struct, frozen=True):
    rewards: dict[str, float] | None
    exceptions: tuple[TrialException, ...]


def read_result(raw: bytes, trial_uuid: str, phase_at: Callable[[float], Phase]) -> Reading:
    """What a result says. `phase_at` is asked for an exception that lies in none of Harbor's own timings.

    Raises ResultInvalid, also for the result of another trial.
    """
    try:
        result = msgspec.json.decode(raw, type=_Result)
        if result.id != trial_uuid:
            raise ResultInvalid("the result is another trial's")
        rewards = result.verifier_result.rewards if result.verifier_result else None
        if rewards is not None and not all(math.isfinite(value) for value in rewards.values()):
            raise ResultInvalid("a reward is not finite")
        return Reading(rewards, _exceptions(result, phase_at))
    except (msgspec.MsgspecError, ValueError) as error:
        raise ResultInvalid(str(error)) from error


def _exceptions(result: _Result, phase_at: Callable[[float], Phase]) -> tuple[TrialException, ...]:
    found: list[TrialException] = []
    timings: list[tuple[Phase, _Timing | None]] = [
        ("provision", result.environment_setup),
        ("agent_setup", result.agent_setup),
        ("agent", result.agent_execution),
        ("verify", result.verifier),
    ]
    if result.exception_info is not None:
        found.append(_exception(result.exception_info, timings, phase_at, None))
    for step in result.step_results or []:
        if step.exception_info is not None:
            own: list[tuple[Phase, _Timing | None]] = [("agent", step.agent_execution), ("verify", step.verifier)]
            found.append(_exception(step.exception_info, own, phase_at, step.step_name))
    return tuple(found)


def _exception(
    info: _Exception, timings: list[tuple[Phase, _Timing | None]], phase_at: Callable[[float], Phase], step: str | None
) -> TrialException:
    phase = OF_ONE_PHASE.get(info.exception_type) or _phase(info, timings) or phase_at(moment(info.occurred_at))
    return TrialException(info.exception_type, info.exception_message[:MESSAGE_LIMIT], phase, step)


def _phase(info: _Exception, timings: list[tuple[Phase, _Timing | None]]) -> Phase | None:
    """The phase during which, or right at whose end, an exception was recorded: Harbor ends a timing first."""
    occurred, found = moment(info.occurred_at), None
    for phase, timing in timings:
        if timing is None or timing.started_at is None:
            continue
        ended = moment(timing.finished_at) if timing.finished_at else math.inf
        if moment(timing.started_at) <= occurred <= ended + 0.05:
            found = phase
    return found
