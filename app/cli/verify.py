"""`seatrial verify`: check an evidence archive offline."""

import sys
from pathlib import Path

import click

from app.cli import show


@click.command()
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@show.as_json
def verify(archive: Path, json_: bool) -> None:
    """Check that every file of ARCHIVE is what its manifest says, and nothing else is in it. Needs no server.

    Archives are not signed yet: this shows that an archive is whole, not who made it.
    """
    from app.evidence.check import check

    found = check(archive)
    problems = [{"code": one.code.value, "path": one.path, "detail": one.detail} for one in found.problems]
    if json_:
        show.document({"ok": found.ok, "sha256": found.sha256, "files": found.files, "problems": problems})
        sys.exit(0 if found.ok else 1)
    for one in problems:
        click.echo(f"{archive}: {one['code']}: {f'{one["path"]} ' if one['path'] else ''}{one['detail']}".rstrip())
    if found.ok and found.provenance is not None:
        said = found.provenance
        rewards = [record.reward for record in said.trials if record.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else None
        adopted = sum(record.adopted_from is not None for record in said.trials)
        click.echo(f"{archive}: whole; {found.files} files, each as its manifest says")
        show.facts(
            [
                ("sha256", found.sha256),
                ("run", f"{said.run_number}  {said.run_id}"),
                ("evaluation", said.evaluation_id),
                ("pack", said.pack.pack_digest),
                ("image", said.build.image.digest),
                ("agent", said.agent.name),
                ("score", f"{show.number(mean)}  ({len(rewards)} of {len(said.trials)} scored)"),
                ("adopted", f"{adopted} of these scores were earned in earlier runs" if adopted else None),
                ("signature", "none yet"),
            ]
        )
    sys.exit(0 if found.ok else 1)
