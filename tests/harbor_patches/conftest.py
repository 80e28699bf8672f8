"""Scripts run in the harness environment, as it is and with every patch taken out again."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from workers.dispatcher.harness import locate

SCRIPTS = Path(__file__).parent / "scripts"

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    return locate.builder()


@pytest.fixture(scope="session")
def built(harness: Path) -> locate.Harness:
    return locate.ensure(harness)


@pytest.fixture(scope="session")
def site(built: locate.Harness) -> Path:
    """site-packages of the harness."""
    return next(built.python.parent.parent.glob("lib/python*/site-packages"))


@pytest.fixture(scope="session")
def run_script(built: locate.Harness) -> Run:
    """Run a script of this folder with the harness's Python and return the JSON that it prints."""

    def run(name: str, *arguments: str, first: Path | None = None) -> Any:
        path = f"import sys; sys.path.insert(0, {str(first)!r})\n" if first else ""
        code = f"{path}import sys; sys.argv = {[name, *arguments]!r}\nexec(open({str(SCRIPTS / name)!r}).read())"
        done = subprocess.run(
            [built.python, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=120,
            env={"PATH": "/usr/bin:/bin", "HARBOR_TELEMETRY": "0", "HOME": "/nonexistent"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def unpatched(builder: ModuleType, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Harbor as it came: the harness's own with every patch reversed, last to first."""
    folder = tmp_path_factory.mktemp("unpatched")
    shutil.copytree(site / "harbor", folder / "harbor", ignore=shutil.ignore_patterns("__pycache__"))
    for patch in reversed(builder.read_patches()):
        for target, hunks in builder._hunks(builder.Patch(patch.name, _reversed(patch.text), {})):
            path = folder / target
            path.write_text(builder._applied(patch.name, target, path.read_text(), hunks))
            assert builder._sha256(path.read_bytes()) == patch.targets[target]
    return folder


def _reversed(text: str) -> str:
    """A diff that takes out what the given one puts in."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("@@ "):
            _, old, new, *rest = line.split(" ")
            lines.append(" ".join(["@@", "-" + new[1:], "+" + old[1:], *rest]))
        elif line.startswith(("--- ", "+++ ")):
            lines.append(line)
        elif line[:1] in "+-":
            lines.append({"+": "-", "-": "+"}[line[0]] + line[1:])
        else:
            lines.append(line)
    return "".join(lines)


@pytest.fixture(scope="session")
def contract(run_script: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the patched harness does."""
    return run_script("contract.py", str(tmp_path_factory.mktemp("patched")))


@pytest.fixture(scope="session")
def before(run_script: Run, unpatched: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Harbor does without the patches: each contract test must fail on it."""
    return run_script("contract.py", str(tmp_path_factory.mktemp("plain")), first=unpatched)
