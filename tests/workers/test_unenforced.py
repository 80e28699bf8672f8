"""What an engine cannot hold is said with the score, and no more and no less than that."""

from pathlib import Path

import hypothesis
from hypothesis import strategies as st

from workers.dispatcher import verdict
from workers.dispatcher.harness.model import HarnessVersion, TrialObservation
from workers.dispatcher.runtimes.docker_container import effective
from workers.dispatcher.runtimes.port import Effective, Labels, NetworkPolicy, SandboxSpec

LABELS = Labels(instance="i", team="t", run="r", trial="l", execution="e")


def seen(found: Effective | None) -> TrialObservation:
    return TrialObservation(
        state="finished", harness=HarnessVersion("0.26.0", "sha256:" + "0" * 64), files=Path("/nowhere"),
        effective=found,
    )  # fmt: skip


@hypothesis.given(
    mode=st.sampled_from(["public", "no-network"]),
    storage_mb=st.none() | st.integers(1, 10_000),
    memory_mb=st.none() | st.integers(6, 10_000),
)
def test_a_limit_that_the_engine_does_not_hold_stands_in_the_validity_record(
    mode: str, storage_mb: int | None, memory_mb: int | None
) -> None:
    spec = SandboxSpec(
        name="agent", image="i", labels=LABELS, ttl_seconds=1, network=NetworkPolicy(mode=mode),
        storage_mb=storage_mb, memory_mb=memory_mb,
    )  # fmt: skip
    described = {
        "HostConfig": {"Memory": (memory_mb or 0) << 20, "NanoCpus": 0, "PidsLimit": spec.pids},
        "NetworkSettings": {"Networks": {"none" if mode == "no-network" else "seatrial-sandboxes": {}}},
    }
    valid = verdict.validity(seen(effective(spec, described, "default")), executions=1, pinned=True)
    wanted = {name for name, there in (("storage_mb", storage_mb), ("private_addresses", mode == "public")) if there}
    assert set(valid.unenforced) == wanted
    assert (valid.egress, valid.memory_mb) == (mode, memory_mb)


def test_of_a_trial_without_a_sandbox_nothing_is_claimed() -> None:
    valid = verdict.validity(seen(None), executions=1, pinned=True)
    assert (valid.egress, valid.unenforced, valid.memory_mb) == ("unknown", (), None)
