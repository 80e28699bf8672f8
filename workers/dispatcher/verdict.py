"""What happened, judged: a score, a failure, or cancelled. Pure: facts in, verdict out.

The rule above all: a failure of the platform, the provider or the pack never looks like a score. A reward counts only when
the harness ended properly and every exception it recorded is one that may still score (the agent used up its time, say).
"""

import math
from typing import Literal

import msgspec

from app.domain.events import EgressSeen, Validity
from app.domain.failures import Failure, Phase, failure, failure_of_exception
from app.domain.trial import primary_reward
from workers.dispatcher.harness.model import TrialException, TrialObservation

MESSAGE_LIMIT = 2000


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Literal["scored", "errored", "cancelled"]
    rewards: dict[str, float] | None = None
    failure: Failure | None = None
    """Why it errored, or what went wrong with the agent in spite of which it scored."""
    message: str | None = None
    """Not redacted yet."""


def judge(seen: TrialObservation, *, verified: bool = True) -> Verdict:
    """`verified` false: no verifier was asked for, so there can be no score."""
    reached = _reached(seen)
    match seen.state:
        case "cancelled":
            return Verdict(outcome="cancelled")
        case "deadline":
            return _errored("trial.timed_out", reached, "the trial passed its total deadline and was stopped")
        case "lost":
            return _lost(seen, reached)
        case "failed":
            worst = next(iter(seen.exceptions), None)
            if worst is None:
                return _errored("harness.failed", reached, "the harness could not begin the trial")
            return Verdict(outcome="errored", failure=_of(worst), message=_text(worst))
        case "finished":
            return _finished(seen, reached, verified=verified)


def _finished(seen: TrialObservation, reached: Phase, *, verified: bool) -> Verdict:
    failures = [(_of(raised), raised) for raised in seen.exceptions]
    for failed, raised in failures:
        if not failed.scored:
            return Verdict(outcome="errored", failure=failed, message=_text(raised))
    if seen.exit.code != 0 or seen.exit.signal is not None:
        return _lost(seen, reached)
    if not verified:
        return _errored("sandbox.none", Phase.VERIFY, "the trial ran without a verifier")
    if seen.rewards is None or not seen.rewards:
        if seen.oom_kills:
            return _errored("verifier.out_of_memory", Phase.VERIFY, "the sandbox ran out of memory; no reward came")
        if failures:
            return Verdict(outcome="errored", failure=failures[0][0], message=_text(failures[0][1]))
        return _errored("verifier.reward_missing", Phase.VERIFY, "the verifier gave no reward")
    if primary_reward(seen.rewards) is None:
        finite = all(math.isfinite(value) for value in seen.rewards.values())
        reason = "there are several rewards and none is named reward" if finite else "a reward is not a finite number"
        return _errored("verifier.reward_invalid", Phase.VERIFY, reason)
    first = failures[0] if failures else None
    return Verdict(
        outcome="scored",
        rewards=seen.rewards,
        failure=first[0] if first else None,
        message=_text(first[1]) if first else None,
    )


def validity(seen: TrialObservation, *, executions: int, pinned: bool) -> Validity:
    """What was observed of the isolation, for the score's validity record."""
    effective = seen.effective
    separate = bool(seen.verifiers) and all(facts.isolation == "separate" for facts in seen.verifiers)
    codes = [facts.exit_code for facts in seen.verifiers if facts.exit_code is not None]
    return Validity(
        verifier_isolation="separate" if separate else "shared",
        egress=effective.network if effective else "unknown",
        egress_probed=effective is not None and effective.egress is not None,
        cpus=effective.cpus if effective else None,
        memory_mb=effective.memory_mb if effective else None,
        pids=effective.pids if effective else None,
        digests_pinned=pinned,
        executions=executions,
        strays_killed=sum(facts.strays_killed for facts in seen.verifiers),
        verifier_exit_code=codes[-1] if codes else None,
        out_of_memory=seen.oom_kills > 0,
        unenforced=effective.unenforced if effective else (),
        egress_seen=msgspec.convert(effective.egress, EgressSeen | None, from_attributes=True) if effective else None,
        harness_isolation="separate" if seen.confined else "shared",
        agent_code="own" if seen.own_code else "harness",
    )


def _of(raised: TrialException) -> Failure:
    return failure_of_exception(raised.type, phase=Phase(raised.phase))


def _lost(seen: TrialObservation, reached: Phase) -> Verdict:
    how = f"signal {seen.exit.signal}" if seen.exit.signal else f"exit code {seen.exit.code}"
    return _errored("harness.lost", reached, f"the harness ended without a proper result ({how})")


def _errored(code: str, phase: Phase, message: str) -> Verdict:
    return Verdict(outcome="errored", failure=failure(code, phase=phase), message=message)


def _reached(seen: TrialObservation) -> Phase:
    return Phase(seen.phases[-1].phase) if seen.phases else Phase.PROVISION


def _text(raised: TrialException) -> str:
    return f"{raised.type}: {raised.message}"  # cut once it is masked: half a secret is known to nobody
