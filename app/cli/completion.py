"""`seatrial completion`: what a shell evaluates to complete our commands."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of SHELL.

    In bash: `eval "$(seatrial completion bash)"`; in fish: `seatrial completion fish | source`."""
    from click.shell_completion import get_completion_class

    from app.cli.group import seatrial

    found = get_completion_class(shell)
    assert found is not None, "the library has these three"
    click.echo(found(seatrial, {}, "seatrial", "_SEATRIAL_COMPLETE").source())
