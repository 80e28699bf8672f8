"""Rules of thumb as pure functions: when to try again, how far to run ahead."""

import datetime

MAXIMUM_TRIALS = 100
"""Trials per evaluation."""
MAXIMUM_EVALUATIONS = 10_000
"""Evaluations per run."""
OPEN_TRIALS_AHEAD = 1_000
"""A run is expanded no further than this many open trials."""
EXPANSION_UNITS = 250
"""Streams that the foreman opens in one transaction."""


def backoff(attempt: int, *, first_seconds: float = 1.0, most_seconds: float = 60.0) -> datetime.timedelta:
    """How long to wait after try number `attempt` failed: 1, 4, 16 s … at most a minute."""
    steps = min(max(0, attempt - 1), 16)  # beyond that the most is reached, and the power would only grow
    return datetime.timedelta(seconds=min(most_seconds, first_seconds * 4**steps))
