"""deploy/find-python.sh on machines that lack one thing or another."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "find-python.sh"


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A PATH with nothing but what the script itself calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "id", "dirname", "tail", "tr"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


def add(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def find(folder: Path, script: Path = SCRIPT, **environment: str) -> "subprocess.CompletedProcess[str]":
    shell = shutil.which("sh")
    assert shell is not None
    return subprocess.run(
        [shell, str(script)],
        env={"PATH": str(folder), "HOME": str(folder.parent), **environment},
        capture_output=True,
        text=True,
    )


def test_an_interpreter_on_the_path_is_taken(bin_folder: Path) -> None:
    add(bin_folder, "python3.12", f'exec "{sys.executable}" "$@"')
    found = find(bin_folder)
    assert found.returncode == 0
    assert os.path.samefile(found.stdout.strip(), sys.executable)


def test_a_shim_of_a_version_that_is_not_installed_is_passed_over(bin_folder: Path) -> None:
    add(bin_folder, "python3.13", "echo not installed >&2; exit 127")
    add(bin_folder, "python3", f'exec "{sys.executable}" "$@"')
    found = find(bin_folder)
    assert found.returncode == 0
    assert os.path.samefile(found.stdout.strip(), sys.executable)


def test_pyenvs_newest_version_is_found_without_its_shims(bin_folder: Path, tmp_path: Path) -> None:
    for version in ("3.11.7", "3.12.1", "3.13.0"):
        folder = tmp_path / "versions" / version / "bin"
        folder.mkdir(parents=True)
        answer = f'[ "$1" = -c ] && case "$2" in *print*) echo {version};; *) exit {int(version < "3.12")};; esac'
        add(folder, "python3", answer)
    found = find(bin_folder, PYENV_ROOT=str(tmp_path))
    assert (found.returncode, found.stdout.strip()) == (0, "3.13.0")


def test_an_old_interpreter_alone_is_not_enough_and_the_remedy_is_one_sentence(bin_folder: Path) -> None:
    add(bin_folder, "python3", "exit 1")
    found = find(bin_folder)
    assert found.returncode == 1
    assert found.stdout == ""
    assert "Python 3.12 or later" in found.stderr.splitlines()[-1]


OLD = 'case "$2" in *print*) echo "Python 3.11";; *ensurepip*) exit 0;; *) exit 1;; esac'
"""An interpreter that is too old; it can make virtual environments, but this one's are empty."""


def test_uv_brings_an_interpreter_where_the_network_has_one(bin_folder: Path) -> None:
    fetched = bin_folder / "fetched"
    add(bin_folder, "python3", OLD)
    add(bin_folder, "fetched", f'exec "{sys.executable}" "$@"')
    add(bin_folder, "uv", f'[ "$2" = install ] || [ "$UV_PYTHON_PREFERENCE" = only-managed ] && echo {fetched}')
    found = find(bin_folder)
    assert (found.returncode, found.stdout.strip()) == (0, str(fetched)), found.stderr


def test_what_kept_uv_from_it_is_told_beside_what_is_here(bin_folder: Path) -> None:
    add(bin_folder, "python3", OLD)
    add(bin_folder, "uv", "echo 'error: failed to download'; echo '  cause:   no such host'; exit 2")
    found = find(bin_folder)
    assert (found.returncode, found.stdout) == (1, "")
    last = found.stderr.splitlines()[-1]
    assert "here is Python 3.11, and uv could not fetch one ( cause: no such host); install one" in last


def test_root_gets_what_uv_needs_to_come_here(bin_folder: Path, tmp_path: Path) -> None:
    """Debian's python3 makes no virtual environment before python3-venv is installed."""
    shutil.copytree(SCRIPT.parent, tmp_path / "deploy", ignore=shutil.ignore_patterns("[!f]*"))
    installed = tmp_path / "installed"
    add(
        bin_folder,
        "python3",
        f'case "$2" in *ensurepip*) [ -e {installed} ];; *print*) echo "Python 3.11";; *) exit 1;; esac',
    )
    (bin_folder / "id").unlink()
    add(bin_folder, "id", "echo 0")
    add(bin_folder, "apt-get", f'case "$*" in *python3-venv*) : > {installed};; esac')
    found = find(bin_folder, script=tmp_path / "deploy" / SCRIPT.name)
    assert installed.exists()
    assert "installing python3-venv" in found.stderr
    assert "there is no uv to fetch one" in found.stderr.splitlines()[-1]


def test_an_interpreter_without_venv_is_told_with_the_remedy(bin_folder: Path) -> None:
    add(bin_folder, "python3", 'case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac')
    (bin_folder / "id").unlink()
    add(bin_folder, "id", "echo 1000")
    found = find(bin_folder)
    assert found.returncode == 1
    assert "sudo apt-get install python3-venv" in found.stderr
