"""The verdict, over everything that could be observed: what is not surely a score is none."""

import math
from pathlib import Path

import hypothesis
import msgspec
from hypothesis import strategies as st

from app.domain.failures import HARBOR, OVERLAY, Fault, Phase, Retry
from app.domain.trial import primary_reward
from workers.dispatcher import verdict
from workers.dispatcher.harness.model import (
    PHASES,
    Exit,
    HarnessVersion,
    PhaseTiming,
    TrialException,
    TrialObservation,
    VerifierFacts,
)
from workers.dispatcher.runtimes.port import Effective, EgressSeen

NAMES = st.one_of(st.sampled_from(sorted({*HARBOR, *OVERLAY})), st.text(min_size=1, max_size=20))
EXCEPTIONS = st.builds(TrialException, type=NAMES, message=st.text(max_size=50), phase=st.sampled_from(PHASES))
REWARDS = st.none() | st.dictionaries(
    st.sampled_from(["reward", "style", "speed"]), st.floats(allow_nan=True, allow_infinity=True), max_size=3
)
EXITS = st.builds(Exit, code=st.none() | st.sampled_from([0, 1, 75, 137]), signal=st.none() | st.sampled_from([9, 15]))
SEEN = st.none() | st.builds(
    EgressSeen,
    how=st.sampled_from(["tried", "read"]),
    interfaces=st.just(("eth0",)),
    routes=st.lists(st.sampled_from(["public", "metadata"]), unique=True).map(tuple),
)
OBSERVATIONS = st.builds(
    TrialObservation,
    state=st.sampled_from(["finished", "failed", "cancelled", "deadline", "lost"]),
    harness=st.just(HarnessVersion("0.26.0", "sha256:" + "0" * 64)),
    files=st.just(Path("/nowhere")),
    phases=st.lists(st.builds(PhaseTiming, phase=st.sampled_from(PHASES), started_at=st.just(0.0)), max_size=3).map(
        tuple
    ),
    rewards=REWARDS,
    exceptions=st.lists(EXCEPTIONS, max_size=3).map(tuple),
    exit=EXITS,
    verifiers=st.lists(st.builds(VerifierFacts, strays_killed=st.integers(0, 3)), max_size=2).map(tuple),
    oom_kills=st.integers(0, 2),
    confined=st.booleans(),
    effective=st.none() | st.builds(Effective, network=st.sampled_from(["public", "no-network"]), egress=SEEN),
)


@hypothesis.settings(max_examples=500, deadline=None)
@hypothesis.given(seen=OBSERVATIONS, verified=st.booleans())
def test_a_score_is_earned_or_there_is_none(seen: TrialObservation, verified: bool) -> None:
    judged = verdict.judge(seen, verified=verified)
    assert (judged.rewards is not None) == (judged.outcome == "scored")
    if judged.outcome == "errored":
        assert judged.failure is not None
        assert judged.message is not None
    if judged.outcome != "scored":
        return
    assert verified
    assert seen.state == "finished"
    assert seen.exit.code == 0  # an end that nobody saw is none
    assert seen.exit.signal is None
    assert judged.rewards == seen.rewards
    assert judged.rewards is not None
    reward = primary_reward(judged.rewards)
    assert reward is not None
    assert math.isfinite(reward)
    # Whatever went wrong on the way was the agent's own doing, by a name that we know.
    assert all((OVERLAY.get(one.type) or HARBOR.get(one.type) or "").startswith("agent.") for one in seen.exceptions)
    if judged.failure is not None:
        assert judged.failure.fault is Fault.AGENT


@hypothesis.given(seen=OBSERVATIONS)
def test_only_a_trial_that_we_stopped_ends_cancelled(seen: TrialObservation) -> None:
    assert (verdict.judge(seen).outcome == "cancelled") == (seen.state == "cancelled")


@hypothesis.given(seen=OBSERVATIONS.filter(lambda seen: seen.state == "lost"))
def test_a_lost_harness_is_tried_again(seen: TrialObservation) -> None:
    failed = verdict.judge(seen).failure
    assert failed is not None
    assert (failed.fault, failed.retry) == (Fault.PLATFORM, Retry.NEW_EXECUTION)
    assert failed.phase == (Phase(seen.phases[-1].phase) if seen.phases else Phase.PROVISION)


@hypothesis.given(seen=OBSERVATIONS)
def test_the_validity_record_says_separate_only_when_every_verifier_was(seen: TrialObservation) -> None:
    valid = verdict.validity(seen, executions=1, pinned=True)
    assert (valid.verifier_isolation == "separate") == (
        bool(seen.verifiers) and all(facts.isolation == "separate" for facts in seen.verifiers)
    )
    assert valid.strays_killed == sum(facts.strays_killed for facts in seen.verifiers)
    assert valid.egress_probed == (valid.egress_seen is not None)
    assert valid.egress_probed == (seen.effective is not None and seen.effective.egress is not None)
    assert valid.egress == (seen.effective.network if seen.effective else "unknown")
    assert valid.harness_isolation == ("separate" if seen.confined else "shared")


@hypothesis.given(seen=OBSERVATIONS)
def test_a_score_of_the_user_s_own_code_says_that_it_rests_on_trust_in_it(seen: TrialObservation) -> None:
    valid = verdict.validity(msgspec.structs.replace(seen, own_code=True), executions=1, pinned=True)
    assert valid.agent_code == "own"
    shipped = verdict.validity(msgspec.structs.replace(seen, own_code=False), executions=1, pinned=True)
    assert msgspec.structs.replace(shipped, agent_code="own") == valid
    assert shipped.agent_code == "harness"
