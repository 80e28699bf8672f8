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
    if json_:
        import msgspec

        click.echo(msgspec.json.encode(found).decode())
    else:
        click.echo(str(found))
    sys.exit(0 if found.ok else 1)
