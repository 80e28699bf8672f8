"""Where harbor-patches lies, in a checkout or in a wheel, and the harness that it has built."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec

import app


class HarnessMissing(RuntimeError):
    """The harness environment is missing or cannot be built. The message says what to do."""


class Harness(msgspec.Struct, frozen=True):
    """A complete build: its interpreter, and what is stamped on every execution."""

    python: Path
    digest: str
    version: str


def patches_folder() -> Path:
    """The folder with build.py. Raises HarnessMissing."""
    package = Path(app.__file__).parent
    for folder in (package / "_harbor_patches", package.parent / "harbor-patches"):
        if (folder / "build.py").exists():
            return folder
    raise HarnessMissing("harbor-patches is not part of this installation: install Seatrial again")


def builder() -> ModuleType:
    """build.py as a module."""
    name = "seatrial_harbor_patches_build"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, patches_folder() / "build.py")
    if spec is None or spec.loader is None:
        raise HarnessMissing("harbor-patches/build.py cannot be read")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is being made
    spec.loader.exec_module(module)
    return module


def ensure(home: Path, progress: Callable[[str], None] = lambda line: None) -> Harness:
    """The current harness under `home`, built when it lacks (seconds to a minute). Blocks; raises HarnessMissing."""
    module = builder()
    try:
        made = module.build(home, progress)
    except module.BuildFailed as error:
        raise HarnessMissing(str(error)) from error
    return Harness(python=made.python, digest=made.digest, version=made.version)
