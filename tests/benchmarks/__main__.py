"""`python -m tests.benchmarks [--scale SHARE] [NAME…]`: measure all figures or some, print the table, keep it.

Writes results/latest.json and latest.md beside it; a run of some figures replaces those and keeps the rest. With a scale other
than 1 (to try the measurements) it writes latest.local.json and .md, which are not committed.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from tests.benchmarks.figures import Figure, machine, table
from tests.benchmarks.ground import ground

RESULTS = Path(__file__).parent / "results"
MEASURES = (
    "appending", "relaying", "rebuilding", "starting", "streaming", "memory",
    "commands", "slots", "hello_world", "no_op", "growth",
)  # fmt: skip
"""Modules of this folder, each with `async def measure(ground) -> list[Figure]`, in the order in which they run."""


async def measure(names: list[str], scale: float) -> list[Figure]:
    found: list[Figure] = []
    async with ground(scale) as under:
        for name in names:
            print(f"{name} …", file=sys.stderr, flush=True)
            began = time.monotonic()
            figures = await importlib.import_module(f"tests.benchmarks.{name}").measure(under)
            print(f"{name}: {time.monotonic() - began:.0f} s\n{table(figures)}", file=sys.stderr, flush=True)
            found += figures
    return found


def keep(figures: list[Figure], stem: str) -> list[Figure]:
    """Put the figures in the place of those of the same name; the others stay. Returns all."""
    path = RESULTS / f"{stem}.json"
    RESULTS.mkdir(exist_ok=True)
    before = msgspec.json.decode(path.read_bytes(), type=list[Figure]) if path.exists() else []
    merged = {one.name: one for one in [*before, *figures]}
    everything = list(merged.values())
    path.write_bytes(msgspec.json.format(msgspec.json.encode(everything), indent=2) + b"\n")
    page = f"# Measurements\n\nMachine: {machine()}. What each figure means and what limits it: ../README.md.\n\n"
    path.with_suffix(".md").write_text(f"{page}{table(everything)}\n")
    return everything


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASURES)}; all without one")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full numbers, to try the measurements")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in MEASURES]
    if unknown:
        parser.error(f"no such measurement: {', '.join(unknown)}. Known: {', '.join(MEASURES)}")
    figures = uvloop.run(measure(chosen.names or list(MEASURES), chosen.scale))
    keep(figures, "latest" if chosen.scale == 1 else "latest.local")
    print(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
