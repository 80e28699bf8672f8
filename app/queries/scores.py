"""What is known so far of the score of an evaluation or a run. A mean is never shown without its coverage."""

import msgspec

from app.domain.statistics import pass_at
from app.eventlog.connect import Pool
from app.queries.pages import Found
from app.queries.rows import to
from app.queries.snapshot import snapshot
from app.queries.statements import statement

VIEWS = ("score",)


class Score(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """Of the evaluation or the run."""
    kind: str
    """evaluation or run."""
    run_id: str
    trials: int
    """Out of how many, in the end."""
    scored: int
    cancelled: int
    errored: dict[str, int]
    """Trials by the owner of the fault."""
    passed: int
    """Trials with reward 1."""
    binary_rewards: bool
    """All rewards so far are 0 or 1."""
    mean: float | None
    standard_error: float | None
    """Of the mean; None below two scored trials."""

    @property
    def coverage(self) -> float:
        """Scored out of all, 0 to 1."""
        return self.scored / self.trials if self.trials else 0.0

    @property
    def ended(self) -> int:
        return self.scored + self.cancelled + sum(self.errored.values())

    def pass_at(self, k: int) -> float | None:
        """That at least one of k trials passes; None when rewards are not 0 or 1, or k are not scored."""
        return pass_at(k, self.passed, self.scored) if self.binary_rewards else None


async def score_of(pool: Pool, team: str, subject: str) -> Found[Score] | None:
    """The score of an evaluation or a run, by its full id."""
    async with snapshot(pool, VIEWS) as seen:
        record = await seen.connection.fetchrow(statement("get_score"), team, subject)
    return None if record is None else Found(to(Score, record), seen.position)
