"""The harness environment of one home, built by `harbor-patches/build.py` (in the wheel: app/_harbor_patches)."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import app
from app.local.errors import ToolMissing

Progress = Callable[[str], None]


class Harness(Protocol):
    """What the builder returns: the interpreter of the environment, the digest of the overlay, and Harbor's version."""

    python: Path
    digest: str
    version: str


def folder() -> Path:
    """Where the builder is: in the package when installed, beside it in a checkout."""
    package = Path(app.__file__).parent
    installed = package / "_harbor_patches"
    return installed if installed.is_dir() else package.parent / "harbor-patches"


def build(home: Path, progress: Progress) -> Harness:
    """Make the environment, or find that it is current. Raises what the builder raises."""
    path = folder() / "build.py"
    spec = importlib.util.spec_from_file_location("seatrial_harness_build", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ToolMissing(f"{path} is missing; install Seatrial again.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return cast(Harness, module.build(home, progress))
