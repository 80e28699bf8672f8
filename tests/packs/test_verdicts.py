"""Every pack ends as its verdict.json says: a score is earned or there is none, and every failure is told by its code.

{"outcome": "scored", "reward": R}   and "code", "phase", "fault" when it scored in spite of a failure of the agent
{"outcome": "errored", "code": …, "phase": …, "fault": …}
optional: strays, out_of_memory, isolation, egress, unenforced, verifier_exit_code, as the score's validity record has them
"""

from typing import Any

import pytest

from app.domain.failures import Fault
from app.domain.trial import primary_reward
from tests.packs.conftest import Trials, verdicts
from workers.dispatcher import verdict

pytestmark = [pytest.mark.docker, pytest.mark.harness]

EXPECTED = verdicts()


@pytest.mark.parametrize("pack", EXPECTED)
async def test_a_pack_ends_as_it_should(pack: str, trials: Trials) -> None:
    ended, expected = await trials.of(pack), EXPECTED[pack]
    assert _told(ended.verdict) == {key: expected.get(key) for key in ("outcome", "reward", "code", "phase", "fault")}, (
        ended.verdict, ended.seen and (ended.seen.exceptions, ended.seen.verifiers, ended.seen.exit), ended.log[-2000:],
    )  # fmt: skip
    assert ended.left == 0
    if ended.seen is None:
        return
    assert ended.seen.teardown_error is None
    valid = verdict.validity(ended.seen, executions=1, pinned=True)
    if expected.get("strays"):  # otherwise there may be some: what a command of the harness leaves for an instant
        assert valid.strays_killed > 0, valid
    assert valid.out_of_memory == expected.get("out_of_memory", valid.out_of_memory), valid
    assert valid.verifier_isolation == expected.get("isolation", valid.verifier_isolation)
    assert valid.egress == expected.get("egress", valid.egress)
    assert list(valid.unenforced) == expected.get("unenforced", list(valid.unenforced))
    assert valid.verifier_exit_code == expected.get("verifier_exit_code", valid.verifier_exit_code)


def test_only_what_the_agent_did_is_ever_scored() -> None:
    """A pack may expect a score with a failure beside it only when that failure is the agent's own."""
    for name, expected in EXPECTED.items():
        if expected["outcome"] == "scored" and "code" in expected:
            assert expected["fault"] == Fault.AGENT, name
        assert (expected["outcome"] == "scored") == ("reward" in expected), name


def _told(judged: verdict.Verdict) -> dict[str, Any]:
    failed = judged.failure
    return {
        "outcome": judged.outcome,
        "reward": primary_reward(judged.rewards) if judged.rewards else None,
        "code": failed.code if failed else None,
        "phase": failed.phase.value if failed else None,
        "fault": failed.fault.value if failed else None,
    }
