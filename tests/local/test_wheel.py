"""The built wheel, installed into an empty environment and started from an empty folder, is the whole program."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [os.fspath(part) for part in command],
        cwd=cwd,
        env={**{k: v for k, v in os.environ.items() if not k.startswith(("SEATRIAL_", "PYTHON"))}, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [found] = folder.glob("*.whl")
    return found


def test_the_wheel_carries_what_is_not_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    carried = {"db/migrations": "app/_migrations", "harbor-patches": "app/_harbor_patches", "examples": "app/_examples"}
    for folder, inside in carried.items():
        kept = run("git", "ls-files", folder, cwd=ROOT).split()
        assert kept
        assert {inside + path.removeprefix(folder) for path in kept} <= names
    for package in ("app", "projections", "workers"):
        assert set(run("git", "ls-files", package, cwd=ROOT).split()) <= names
    assert [name for name in names if name.endswith((".pyc", ".sock")) or "/.venv/" in name] == []


@pytest.mark.docker
@pytest.mark.harness
def test_the_wheel_starts_from_an_empty_folder(
    wheel: Path, tmp_path: Path, memory_folder: Path, docker_host: str, harness: Path
) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    run(UV, "venv", "-q", "--python", sys.executable, tmp_path / "environment", cwd=tmp_path)
    run(UV, "pip", "install", "-q", "--python", python, "-c", ROOT / "requirements.lock", wheel, cwd=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    settings = {
        "SEATRIAL_HOME": str(memory_folder / "wheel"),
        "SEATRIAL_HTTP_PORT": "0",
        "SEATRIAL_DOCKER_HOST": docker_host,
        "SEATRIAL_HARNESS_HOME": str(harness),
    }
    try:
        run(python, "-m", "app.local", "up", "--detach", cwd=empty, **settings)
        assert '"ready":true' in run(python, "-m", "app.local", "status", "--json", cwd=empty, **settings)
    finally:
        run(python, "-m", "app.local", "down", cwd=empty, **settings)
    assert list(empty.iterdir()) == []
    where = run(python, "-c", "import app, workers; print(app.__file__, workers.__file__)", cwd=empty)
    assert where.count(str(tmp_path / "environment")) == 2
