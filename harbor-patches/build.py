"""Build the harness environment: Harbor, pinned and patched, with Seatrial's overlay, in its own virtual environment.

    python harbor-patches/build.py --home DIR [--python P] [--uv UV]

Under DIR each build has a folder of its own, named by what went into it, so that a running fork server keeps the files
that it was started from. A build is made aside and renamed into place when complete; one that is current is found in
milliseconds. Needs the standard library and `uv`.

What makes it trustworthy: every package is pinned by hash (harness.lock), every file that a patch changes must have the
recorded sha256 before, patches apply exactly or not at all, and the digest over all of it is stamped on each execution.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

FORMAT = 1
HERE = Path(__file__).resolve().parent
HARBOR = "0.26.0"
KEEP = 2
"""Builds to keep beside the current one: a server of the old may still be draining."""
READABLE, READABLE_FOLDER = 0o644, 0o755
"""The children of a root worker are users of their own, whatever the builder's mask."""
_PYTHON_FILE = re.compile(r".*\.py\Z")


class BuildFailed(Exception):
    """The harness environment could not be built. The message says which step, and what to do."""


@dataclass(frozen=True)
class Harness:
    """A complete build. `digest` is over Harbor's version, the lock, the patches and the overlay."""

    python: Path
    digest: str
    version: str


@dataclass(frozen=True)
class Patch:
    """One behaviour, changed. Its header lines (`Key: value`) precede the first `---`; see README.md."""

    name: str
    text: str
    targets: dict[str, str]
    """Path below site-packages -> sha256 that the unpatched file must have."""


def build(
    home: Path, progress: Callable[[str], None] = lambda line: None, *, python: str = sys.executable, uv: str = ""
) -> Harness:
    """The current build under `home`, made when it does not exist. Raises BuildFailed."""
    patches = read_patches()
    digest = overlay_digest(patches)
    version = _python_version(python)
    folder = home / f"harbor-{HARBOR}-py{version}-{digest[:16]}"
    if (found := _complete(folder, digest)) is not None:
        return found
    home.mkdir(parents=True, exist_ok=True)
    with _alone(home):
        if (found := _complete(folder, digest)) is not None:  # somebody else has just made it
            return found
        aside = home / f".building-{secrets.token_hex(6)}"
        try:
            _make(aside, python, uv or _find_uv(), patches, digest, version, progress)
            if folder.exists():  # incomplete, or its Python has gone
                os.rename(folder, aside.with_suffix(".old"))
            os.rename(aside, folder)
            _sync_folder(home)
        finally:
            for left in home.glob(".building-*"):
                shutil.rmtree(left, ignore_errors=True)
        _prune(home, folder)
    made = _complete(folder, digest)
    if made is None:
        raise BuildFailed(f"the build in {folder} is not complete")
    return made


def _make(
    aside: Path,
    python: str,
    uv: str,
    patches: list[Patch],
    digest: str,
    version: str,
    progress: Callable[[str], None],
) -> None:
    progress(f"Harbor {HARBOR}: making an environment for Python {version}")
    _run(uv, "venv", "--quiet", "--relocatable", "--no-project", "--python", python, str(aside))
    inner = aside / "bin" / "python"
    progress("Harbor: installing its packages, pinned by hash")
    _run(
        uv, "pip", "install", "--quiet", "--python", str(inner), "--no-deps", "--require-hashes",
        "-r", str(HERE / "harness.lock"),
    )  # fmt: skip
    site = next(aside.glob("lib/python*/site-packages"))
    for patch in patches:
        progress(f"Harbor: applying {patch.name}")
        apply(patch, site)
    overlay = site / "seatrial_harness"
    overlay.mkdir()
    for name, content in overlay_files().items():
        (overlay / name).write_bytes(content)
        (overlay / name).chmod(READABLE)
    overlay.chmod(READABLE_FOLDER)
    progress("Harbor: compiling and checking")
    _run(str(inner), "-I", "-m", "compileall", "-q", "-j", "2", str(site / "harbor"), str(overlay))
    _run(
        str(inner), "-I", "-c",
        "import importlib.metadata, importlib\n"
        "from seatrial_harness.forkserver import PRELOAD\n"
        "[importlib.import_module(name) for name in PRELOAD]\n"
        f"assert importlib.metadata.version('harbor') == {HARBOR!r}",
    )  # fmt: skip
    manifest = {
        "format": FORMAT,
        "harbor": HARBOR,
        "digest": digest,
        "python": version,
        "patches": [
            {"name": p.name, "targets": {t: _sha256((site / t).read_bytes()) for t in p.targets}} for p in patches
        ],
        "overlay": {name: _sha256(content) for name, content in overlay_files().items()},
    }
    with (aside / "overlay.json").open("w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _complete(folder: Path, digest: str) -> Harness | None:
    try:
        manifest = json.loads((folder / "overlay.json").read_text())
    except (OSError, ValueError):
        return None
    python = folder / "bin" / "python"
    if manifest.get("digest") != digest or not os.access(python, os.X_OK):
        return None
    return Harness(python=python, digest=f"sha256:{digest}", version=HARBOR)


# -- what goes in


def overlay_files() -> dict[str, bytes]:
    """The files of the overlay package: the folder's, and the wire that the worker speaks."""
    files = {
        path.name: path.read_bytes()
        for path in sorted((HERE / "overlay" / "seatrial_harness").iterdir())
        if _PYTHON_FILE.match(path.name)
    }
    files["wire.py"] = _wire().read_bytes()
    return files


def _wire() -> Path:
    """wire.py lies with the worker: in a checkout beside this folder, in a wheel beside the package that holds it."""
    for root in (HERE.parent, HERE.parent.parent):
        path = root / "workers" / "dispatcher" / "harness" / "wire.py"
        if path.exists():
            return path
    raise BuildFailed("workers/dispatcher/harness/wire.py is missing: the installation is incomplete")


def overlay_digest(patches: list[Patch]) -> str:
    """SHA-256 over everything that decides how the harness behaves, in hex."""
    total = hashlib.sha256(f"seatrial harness {FORMAT}\nharbor {HARBOR}\n".encode())
    parts = {"harness.lock": (HERE / "harness.lock").read_bytes()}
    parts |= {f"patches/{patch.name}": patch.text.encode() for patch in patches}
    parts |= {f"overlay/{name}": content for name, content in overlay_files().items()}
    for name in sorted(parts):
        total.update(f"{name}\0{_sha256(parts[name])}\n".encode())
    return total.hexdigest()


def read_patches() -> list[Patch]:
    found: list[Patch] = []
    for path in sorted((HERE / "patches").glob("P*.patch")):
        text = path.read_text()
        targets = dict(re.findall(r"^Target: (\S+) sha256:([0-9a-f]{64})$", text, re.MULTILINE))
        if not targets:
            raise BuildFailed(f"{path.name} names no target")
        found.append(Patch(path.name, text, targets))
    return found


# -- applying a patch


def apply(patch: Patch, site: Path) -> None:
    """Apply a unified diff below `site`: every context line exactly where it says, or BuildFailed.

    A target of several patches has the hash that the ones before it left, so the order of the names counts. Files are
    replaced, never written in place: the package cache may share them.
    """
    changed: dict[str, str] = {}
    for target, expected in patch.targets.items():
        content = (site / target).read_bytes()
        if _sha256(content) != expected:
            raise BuildFailed(f"{patch.name}: {target} is not the file that this patch was made for")
        changed[target] = content.decode()
    seen: set[str] = set()
    for target, hunks in _hunks(patch):
        if target not in changed:
            raise BuildFailed(f"{patch.name}: changes {target}, which its header does not name")
        changed[target] = _applied(patch.name, target, changed[target], hunks)
        seen.add(target)
    if seen != set(changed):
        raise BuildFailed(f"{patch.name}: its header names a target that it does not change")
    for target, text in changed.items():
        aside = site / f"{target}.new"
        aside.write_text(text)
        aside.chmod(READABLE)
        os.replace(aside, site / target)


def _hunks(patch: Patch) -> Iterator[tuple[str, list[tuple[int, list[str]]]]]:
    """(target, [(first old line, lines with their sign)]) for each file of a diff."""
    target, hunks, lines = "", list[tuple[int, list[str]]](), list[str]()
    body = patch.text[patch.text.index("\n--- a/") + 1 :].splitlines(keepends=True)
    for line in body:
        if line.startswith("--- a/"):
            if target:
                yield target, hunks
            target, hunks = line.removeprefix("--- a/").strip(), []
        elif line.startswith("+++ b/"):
            continue
        elif head := re.match(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@", line):
            lines = []
            hunks.append((int(head[1]), lines))
        elif line[:1] in (" ", "+", "-") and hunks:
            lines.append(line)
        elif line == "\n" and hunks:  # an editor may strip the space of an empty context line
            lines.append(" \n")
        else:
            raise BuildFailed(f"{patch.name}: cannot read the line {line!r}")
    yield target, hunks


def _applied(name: str, target: str, text: str, hunks: list[tuple[int, list[str]]]) -> str:
    old = text.splitlines(keepends=True)
    new: list[str] = []
    at = 0
    for first, lines in hunks:
        if first - 1 < at:
            raise BuildFailed(f"{name}: the hunks of {target} overlap")
        new += old[at : first - 1]
        at = first - 1
        for line in lines:
            if line[0] != "+":
                if at >= len(old) or old[at] != line[1:]:
                    raise BuildFailed(f"{name}: {target} line {at + 1} is not what the patch expects")
                at += 1
            if line[0] != "-":
                new.append(line[1:])
    return "".join(new + old[at:])


# -- the machine


def _find_uv() -> str:
    with contextlib.suppress(ImportError, OSError):
        import uv

        return uv.find_uv_bin()
    if found := shutil.which("uv"):
        return found
    raise BuildFailed("uv is not installed: `pip install uv`, or pass --uv")


def _python_version(python: str) -> str:
    if python == sys.executable:
        found = (sys.version_info.major, sys.version_info.minor)
    else:
        text = _run(python, "-I", "-c", "import sys; print(*sys.version_info[:2])")
        found = (int(text.split()[0]), int(text.split()[1]))
    if found < (3, 12):
        raise BuildFailed(f"Harbor needs Python 3.12 or newer; {python} is {found[0]}.{found[1]}")
    return f"{found[0]}.{found[1]}"


def _run(*command: str) -> str:
    """A step's output. Its environment is ours without what would steer Python or uv elsewhere."""
    unwanted = ("PYTHON", "VIRTUAL_ENV", "SEATRIAL_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, umask=0o022)
    except OSError as error:
        raise BuildFailed(f"{Path(command[0]).name} cannot be started: {error.strerror}") from error
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
        raise BuildFailed(f"{Path(command[0]).name} {command[1]} failed:\n{last}")
    return done.stdout


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One builder per home at a time; the lock goes with the process, also when that is killed."""
    with (home / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prune(home: Path, current: Path) -> None:
    others = sorted(
        (p for p in home.glob("harbor-*") if p != current and p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True
    )
    for folder in others[KEEP:]:
        shutil.rmtree(folder, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the harness environment.")
    parser.add_argument("--home", type=Path, required=True, help="the folder that holds the builds")
    parser.add_argument("--python", default=sys.executable, help="the Python (>= 3.12) to build with")
    parser.add_argument("--uv", default="", help="the uv to install with")
    given = parser.parse_args()
    try:
        made = build(given.home.absolute(), lambda line: print(line, file=sys.stderr), python=given.python, uv=given.uv)
    except BuildFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"python": str(made.python), "digest": made.digest, "version": made.version}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
