"""`seatrial admin audit`: checks the whole log and says what it found, where, and what it cannot see."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import asyncpg
import msgspec

from app.eventlog.audit import Report, audit
from app.eventlog.connect import LOST, connect
from app.evidence.keys import KeyUnusable, public_keys

CLEAN, TAMPERED, NOT_CHECKED = 0, 1, 2
"""Exit codes."""


async def run_audit(
    url: str, *, keys_folder: Path, held: Sequence[Path] = (), as_json: bool = False, out: TextIO
) -> int:
    """Audit the log behind `url` with the public keys of a folder, and checkpoints held elsewhere; an exit code."""
    try:
        keys = public_keys(keys_folder)
        envelopes = [path.read_bytes() for path in held]
        connection = await connect(url, command_seconds=3600)
    except (KeyUnusable, asyncpg.PostgresError, *LOST) as error:
        out.write(f"not audited: {error}\n")
        return NOT_CHECKED
    try:
        report = await audit(connection, keys, envelopes)
    except LOST as error:
        out.write(f"not audited: the database went away: {error}\n")
        return NOT_CHECKED
    finally:
        connection.terminate()
    out.write(msgspec.json.encode(report).decode() + "\n" if as_json else text(report))
    return CLEAN if report.clean else TAMPERED


def text(report: Report) -> str:
    """The report for a person, line by line."""
    lines = [
        f"incarnation  {report.incarnation}",
        f"events       {report.events} in {report.streams} streams, last position {report.last_position}",
        f"sealed       up to position {report.sealed_position} by {report.checkpoints} signed checkpoints; "
        f"{report.unsealed_events} events not yet",
    ]
    if report.erased:
        lines.append(
            f"erased       the private parts of {_positions(report.erased)}: recorded in the log, not tampering"
        )
    lines += [f"note         {note}" for note in report.notes]
    for finding in report.findings:
        lines.append(f"{finding.code.upper():<20} {finding.message}")
    if report.more_findings:
        lines.append(f"… and {report.more_findings} more findings")
    lines.append("the log is whole" if report.clean else f"{len(report.findings) + report.more_findings} findings")
    return "\n".join(lines) + "\n"


def _positions(positions: Sequence[int], shown: int = 20) -> str:
    listed = ", ".join(map(str, positions[:shown]))
    return f"positions {listed}" + (f" and {len(positions) - shown} more" if len(positions) > shown else "")
