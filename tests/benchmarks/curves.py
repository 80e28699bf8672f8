"""Curves of figures over the size of the log: kept as JSON, as a page, and as a picture."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.benchmarks.figures import Goal, machine

RESULTS = Path(__file__).parent / "results"
COLUMNS = 4
GROWN = 2.0
"""A figure that is worse by more than this factor at the largest size has grown."""


class Curve(msgspec.Struct):
    name: str
    unit: str
    events: list[int] = msgspec.field(default_factory=list[int])
    values: list[float] = msgspec.field(default_factory=list[float])
    least: list[float] = msgspec.field(default_factory=list[float])
    """The same in the smallest log: at the same time, where it is a single call, else as it was then."""

    @property
    def goal(self) -> Goal:
        """Against the smallest size: a rate may fall, a time may rise, by the factor GROWN."""
        rate = self.unit.endswith("/s")
        return Goal("ratio", 1 / GROWN if rate else GROWN, least=rate)


def keep(curves: Sequence[Curve], scale: float) -> None:
    """results/growth.{json,md,png}; of a run with small numbers growth.local.*, which are not committed."""
    stem = RESULTS / ("growth" if scale >= 0.1 else "growth.local")
    shown = [
        {
            "name": one.name,
            "unit": one.unit,
            "events": one.events,
            "values": one.values,
            "least": one.least,
            "machine": machine(),
        }
        for one in curves
    ]
    Path(f"{stem}.json").write_bytes(msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n")
    Path(f"{stem}.md").write_text(_page(curves, Path(f"{stem}.png").name))
    _draw(curves, Path(f"{stem}.png"))


def _page(curves: Sequence[Curve], picture: str) -> str:
    sizes = [f"{count:,} events" for count in curves[0].events]
    lines = ["| figure | unit | " + " | ".join(sizes) + " | grows |", "|---|---|" + "---|" * (len(sizes) + 1)]
    for one in curves:
        values = " | ".join(f"{value:.4g}" for value in one.values)
        grows = "no" if one.goal.holds(one.values[-1], one.least[-1]) else "YES"
        lines.append(f"| {one.name} | {one.unit} | {values} | {grows} |")
    table = "\n".join(lines)
    return (
        f"# Growth\n\nMachine: {machine()}. What is measured: ../growth.py. A figure grows when it is worse by more than "
        f"{GROWN:g} x at the "
        f"largest size than the same, at the same time, in the smallest log (dotted).\n\n{table}\n\n![The same as curves]({picture})\n"
    )


def _draw(curves: Sequence[Curve], to: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = -(-len(curves) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(4 * COLUMNS, 2.8 * rows), squeeze=False, sharex=True)
    for place, one in zip(axes.flat, curves, strict=False):
        place.plot(one.events, one.values, marker="o")
        place.plot(one.events, one.least, linestyle=":", color="gray")
        place.set(xscale="log", ylim=(0, max(*one.values, *one.least) * 1.25), ylabel=one.unit)
        place.set_title(one.name, fontsize=9)
        place.grid(visible=True, alpha=0.3)
    for place in axes.flat[len(curves) :]:
        place.set_visible(False)
    for place in axes[-1]:
        place.set_xlabel("events in the log")
    figure.tight_layout()
    figure.savefig(to, dpi=80)
