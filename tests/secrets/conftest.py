"""One system whose operator has given it secrets wherever an operator can, and what it left behind."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.secrets.story import Story, tell
from workers.dispatcher.harness.locate import ensure

AGENTS = Path(__file__).parent / "agents"


@pytest.fixture(scope="session")
def dumping_harness(harness: Path) -> Path:
    """A home of harnesses in which the tests' own agent can be imported: a copy of the current build by hard links, which is
    kept, with the agent in it. (A child sees its own environment and nothing else, so a path to the real one would not do.)"""
    real = ensure(harness).python.parents[1]
    home = harness.with_name("harness-for-secrets")
    made = home / real.name
    if not (made / "overlay.json").exists():
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(real, made, symlinks=True, copy_function=os.link, ignore=shutil.ignore_patterns("overlay.json"))
        shutil.copy(real / "overlay.json", made)
    (site,) = made.glob("lib/python*/site-packages")
    shutil.copyfile(AGENTS / "dumping.py", site / "dumping.py")
    (site / "dumping.py").chmod(0o644)
    return home


@pytest.fixture(scope="session")
async def story(memory_folder: Path, docker_host: str, dumping_harness: Path) -> AsyncIterator[Story]:
    folder = Path(tempfile.mkdtemp(prefix="secrets-", dir=memory_folder))
    folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        yield await tell(folder, docker_host, dumping_harness, patch)
