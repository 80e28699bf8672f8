"""What a measurement yields, and how a list of them is written: a table for people, JSON for programs."""

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec


class Goal(msgspec.Struct, frozen=True):
    """What the figure, or its ratio to its peer, shall be."""

    of: Literal["value", "ratio", "excess"]
    """`excess`: value minus peer_value."""
    bound: float
    least: bool = False
    """At least the bound, else at most."""

    def holds(self, value: float, peer_value: float | None) -> bool:
        seen = value
        if self.of != "value":
            if peer_value is None:
                return False
            seen = value / peer_value if self.of == "ratio" else value - peer_value
        return seen >= self.bound if self.least else seen <= self.bound

    def text(self, unit: str) -> str:
        word = "at least" if self.least else "at most"
        match self.of:
            case "value":
                return f"{word} {self.bound:g} {unit}"
            case "ratio":
                return f"{word} {self.bound:g} x"
            case "excess":
                return f"{word} +{self.bound:g} {unit}"


class Figure(msgspec.Struct, frozen=True):
    """One line of the table. `ratio` is value / peer_value; `holds` is None where there is no goal."""

    name: str
    value: float
    unit: str
    peer: str | None
    peer_value: float | None
    ratio: float | None
    goal: str | None
    holds: bool | None
    machine: str


def figure(
    name: str,
    value: float,
    unit: str,
    goal: Goal | None = None,
    *,
    peer: str | None = None,
    peer_value: float | None = None,
) -> Figure:
    return Figure(
        name=name,
        value=_short(value),
        unit=unit,
        peer=peer,
        peer_value=None if peer_value is None else _short(peer_value),
        ratio=None if not peer_value else _short(value / peer_value),
        goal=None if goal is None else goal.text(unit),
        holds=None if goal is None else goal.holds(value, peer_value),
        machine=machine(),
    )


def machine() -> str:
    """The machine in a few words; nothing that names it."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{os.cpu_count()} x {model}, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}, Python {python}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def table(figures: Sequence[Figure]) -> str:
    """As Markdown, aligned so that it can be read on a terminal too."""
    rows = [("figure", "value", "peer in the same run", "its value", "ratio", "goal", "holds")]
    for one in figures:
        rows.append(
            (
                one.name,
                f"{one.value:g} {one.unit}",
                one.peer or "-",
                "-" if one.peer_value is None else f"{one.peer_value:g} {one.unit}",
                "-" if one.ratio is None else f"{one.ratio:g}",
                one.goal or "-",
                {None: "-", True: "yes", False: "NO"}[one.holds],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _short(value: float) -> float:
    """Four digits: more would pretend."""
    return float(f"{value:.4g}")
