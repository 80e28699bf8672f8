"""Docker from Debian's packages: the engine, and the command with its BuildKit plugin.

Debian 12's own docker.io (20.10) has an old BuildKit and no buildx; Debian 13's (26.1) runs on Debian 12's libc and runc, so it
is taken where the machine's mirror offers it (measured: 18 s, libc untouched). Nothing that is installed is ever removed.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from app.local import apt
from app.local.errors import EngineInstallFailed, EngineUnavailable, NoSpace, ToolMissing

NEWER = "trixie"
"""The release whose engine runs on bookworm too. runc is not taken from it: it needs a newer libc."""
SPACE_BYTES = 3 * 1024**3

Progress = Callable[[str], None]
Ask = Callable[[str], bool]


def has_client() -> bool:
    """Whether the command `docker buildx` works here."""
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "buildx", "version"], capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def install_engine(system: apt.Release, progress: Progress, ask: Ask | None) -> None:
    """Raises EngineUnavailable or NoSpace."""
    if not system.is_debian_like or not apt.has_apt():
        raise EngineUnavailable(
            "No container engine is installed; install Docker from your system's packages and start it."
        )
    check_space(Path("/var/lib"))
    if ask is not None and not ask("No container engine is installed. Install docker.io with apt now?"):
        raise EngineUnavailable(
            "No container engine is installed; run `apt-get install docker.io`, or say yes next time."
        )
    progress("installing the container engine (docker.io)")
    needed, wanted = ["docker.io", "iptables", "ca-certificates"], ["docker-cli", "docker-buildx"]
    try:
        _install(system, ["docker.io", "docker-cli", "containerd", "docker-buildx"], needed, wanted, progress)
    except apt.CommandFailed as error:
        raise EngineInstallFailed(f"apt could not install docker.io ({error.line}); install it by hand.") from error


def install_client(system: apt.Release, progress: Progress, ask: Ask | None) -> None:
    """For an engine that came without: a daemon elsewhere, or an old package. Raises ToolMissing."""
    missing = ["docker-buildx"] if shutil.which("docker") else ["docker-cli", "docker-buildx"]
    remedy = f"Building needs the command `docker buildx`; install {' and '.join(missing)} from your system's packages."
    if not system.is_debian_like or not apt.has_apt():
        raise ToolMissing(remedy)
    if ask is not None and not ask(f"Building needs {' and '.join(missing)}. Install with apt now?"):
        raise ToolMissing(remedy)
    progress(f"installing {' and '.join(missing)}")
    try:
        _install(system, missing, missing, [], progress)
    except apt.CommandFailed as error:
        raise ToolMissing(f"{remedy} (apt: {error.line})") from error
    if not has_client():
        raise ToolMissing(remedy)


def newer_source(system: apt.Release) -> apt.Source | None:
    """The archive of NEWER on the mirror that this machine uses, when its own release is the one before."""
    if (system.distribution, system.codename) != ("debian", "bookworm"):
        return None
    own = apt.main_archive(apt.sources(), system.codename)
    return None if own is None else msgspec.structs.replace(own, suite=NEWER, components="main")


def check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < SPACE_BYTES:
        raise NoSpace(
            f"The container engine needs {SPACE_BYTES / 1e9:.0f} GB free under {folder} and finds {free / 1e9:.1f}; free some."
        )


def _install(
    system: apt.Release, newer: Sequence[str], needed: Sequence[str], wanted: Sequence[str], progress: Progress
) -> None:
    """Install `newer` from NEWER where that may be, else `needed` and what there is of `wanted`. Raises CommandFailed."""
    source = newer_source(system)
    if source is not None:
        try:
            with apt.private([source]) as packages:
                packages.update()
                packages.install(
                    [*(f"{name}/{NEWER}" for name in newer), *(name for name in needed if name not in newer)]
                )
            return
        except apt.CommandFailed as error:
            progress(f"this mirror has no usable {NEWER} engine ({error.line}); taking {system.codename}'s own")
    with apt.private() as packages:
        packages.update()
        packages.install(needed)
        for name in wanted:  # not in every release as a package of its own
            with contextlib.suppress(apt.CommandFailed):
                packages.install([name])
