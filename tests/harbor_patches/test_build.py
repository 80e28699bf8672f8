"""The builder: current builds are found at once, anything unexpected is refused, and a kill leaves no half build."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.harbor_patches.conftest import Run
from workers.dispatcher.harness import locate

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "harbor-patches" / "build.py"

ORIGINAL = "".join(f"line {n}\n" for n in range(1, 21))
DIFF = """--- a/pkg/module.py
+++ b/pkg/module.py
@@ -3,4 +3,5 @@
 line 3
-line 4
+line four
+and more
 line 5
 line 6
@@ -18,3 +19,2 @@
 line 18
-line 19
 line 20
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "module.py").write_text(ORIGINAL)
    return tmp_path


def patch(builder: ModuleType, site: Path, diff: str = DIFF, **changes: str) -> object:
    targets = {"pkg/module.py": builder._sha256((site / "pkg" / "module.py").read_bytes())} | changes
    return builder.Patch("P0-test", f"Patch: P0\n\n{diff}", targets)


def test_a_patch_applies_exactly(builder: ModuleType, site: Path) -> None:
    builder.apply(patch(builder, site), site)
    changed = (site / "pkg" / "module.py").read_text().splitlines()
    assert changed[2:6] == ["line 3", "line four", "and more", "line 5"]
    assert changed[-2:] == ["line 18", "line 20"]
    assert len(changed) == 20


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" line 5\n", " line five\n"),
        ("@@ -3,4 +3,5 @@", "@@ -4,4 +4,5 @@"),
        ("@@ -18,3 +19,2 @@", "@@ -1,3 +1,2 @@"),
        ("-line 19\n", "?line 19\n"),
        (" line 20\n", " line 20\n line 21\n"),
    ],
    ids=["context", "offset", "overlap", "sign", "beyond the end"],
)
def test_a_patch_that_does_not_fit_to_the_letter_is_refused_and_changes_nothing(
    old: str, new: str, builder: ModuleType, site: Path
) -> None:
    with pytest.raises(builder.BuildFailed, match="P0-test"):
        builder.apply(patch(builder, site, DIFF.replace(old, new)), site)
    assert (site / "pkg" / "module.py").read_text() == ORIGINAL


def test_a_file_that_has_changed_is_refused(builder: ModuleType, site: Path) -> None:
    made = patch(builder, site)
    (site / "pkg" / "module.py").write_text(ORIGINAL + "# one byte more\n")
    with pytest.raises(builder.BuildFailed, match=r"pkg/module\.py is not the file"):
        builder.apply(made, site)


def test_a_file_that_the_header_does_not_name_is_refused(builder: ModuleType, site: Path) -> None:
    (site / "pkg" / "other.py").write_text(ORIGINAL)
    more = DIFF + DIFF.replace("module.py", "other.py")
    with pytest.raises(builder.BuildFailed, match=r"pkg/other\.py, which its header does not name"):
        builder.apply(patch(builder, site, more), site)


def test_a_shared_file_is_replaced_and_not_written_in_place(builder: ModuleType, site: Path) -> None:
    """The package cache may hold the same file by a hard link."""
    os.link(site / "pkg" / "module.py", site / "cache.py")
    builder.apply(patch(builder, site), site)
    assert (site / "cache.py").read_text() == ORIGINAL


def test_the_digest_is_over_all_that_decides(
    builder: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    patches = builder.read_patches()
    assert [p.name[:2] for p in patches] == ["P1", "P2", "P3", "P4", "P5"]
    was = builder.overlay_digest(patches)
    assert was == builder.overlay_digest(builder.read_patches())
    assert was != builder.overlay_digest(patches[:-1])
    copy = tmp_path / "harbor-patches"
    shutil.copytree(BUILD.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "workers" / "dispatcher" / "harness", tmp_path / "workers" / "dispatcher" / "harness")
    monkeypatch.setattr(builder, "HERE", copy)
    assert was == builder.overlay_digest(builder.read_patches())
    for path in (
        copy / "overlay" / "seatrial_harness" / "child.py",
        copy / "harness.lock",
        tmp_path / "workers" / "dispatcher" / "harness" / "wire.py",
    ):
        text = path.read_text()
        path.write_text(text + "# changed\n")
        assert builder.overlay_digest(builder.read_patches()) != was, path.name
        path.write_text(text)


@pytest.mark.harness
def test_a_current_build_is_found_and_left_alone(harness: Path, builder: ModuleType) -> None:
    told: list[str] = []
    made = builder.build(harness, told.append)
    assert told == []
    assert made.version == "0.26.0"
    assert made.digest == "sha256:" + builder.overlay_digest(builder.read_patches())
    manifest = json.loads((made.python.parents[1] / "overlay.json").read_text())
    assert [p["name"][:2] for p in manifest["patches"]] == ["P1", "P2", "P3", "P4", "P5"]
    assert set(manifest["overlay"]) >= {"wire.py", "forkserver.py", "child.py", "environment.py", "verifier.py"}


@pytest.mark.harness
def test_the_command_prints_the_same(harness: Path, built: locate.Harness) -> None:
    done = subprocess.run(
        [sys.executable, str(BUILD), "--home", str(harness)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"python": str(built.python), "digest": built.digest, "version": "0.26.0"}


@pytest.mark.harness
def test_harbor_s_other_files_are_untouched(built: locate.Harness, builder: ModuleType) -> None:
    """Beside the patched ones, every file of Harbor has the hash that its wheel records."""
    import base64
    import csv
    import hashlib

    site = next(built.python.parents[1].glob("lib/python*/site-packages"))
    patched = {target for patch in builder.read_patches() for target in patch.targets}
    with next(site.glob("harbor-*.dist-info")).joinpath("RECORD").open() as file:
        for path, recorded, _ in csv.reader(file):
            if not path.startswith("harbor/") or not recorded:
                continue
            digest = base64.urlsafe_b64encode(hashlib.sha256((site / path).read_bytes()).digest()).rstrip(b"=").decode()
            assert (f"sha256={digest}" == recorded) != (path in patched), path


@pytest.mark.slow
@pytest.mark.harness
def test_a_build_that_was_killed_is_made_again(tmp_path: Path) -> None:
    """Killed while packages are installed: nothing in place, and the next build clears up and completes."""
    command = [sys.executable, str(BUILD), "--home", str(tmp_path / "home")]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stderr is not None
    for line in first.stderr:
        if "installing" in line:
            break
    time.sleep(0.3)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stderr.close()
    assert list((tmp_path / "home").glob(".building-*"))
    assert not list((tmp_path / "home").glob("harbor-*"))
    done = subprocess.run(command, capture_output=True, text=True, check=True, umask=0o077)
    made = json.loads(done.stdout)
    assert Path(made["python"]).exists()
    hidden = [path for path in Path(made["python"]).parents[1].rglob("*") if not path.stat().st_mode & 0o004]
    assert {path.name for path in hidden} <= {".lock", "overlay.json"}, "who runs an agent's code is another user"
    assert not list((tmp_path / "home").glob(".building-*"))
    shutil.rmtree(tmp_path / "home")


@pytest.mark.harness
def test_two_builders_at_once_make_one_build(harness: Path, builder: ModuleType, built: locate.Harness) -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(builder.build(harness))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {str(made.python) for made in found} == {str(built.python)}  # type: ignore[attr-defined]


def test_a_python_that_is_too_old_says_so(builder: ModuleType, tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 3 11\n")
    old.chmod(0o755)
    with pytest.raises(builder.BuildFailed, match=r"needs Python 3\.12 or newer; .* is 3\.11"):
        builder.build(tmp_path / "home", python=str(old))


def test_a_uv_that_is_not_there_says_so(builder: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(builder.BuildFailed, match="no-such-uv cannot be started"):
        builder.build(tmp_path / "home", uv="/nonexistent/no-such-uv")
    assert not list((tmp_path / "home").glob("harbor-*"))


def test_the_lock_pins_every_package_by_hash_and_names_no_index() -> None:
    text = (BUILD.parent / "harness.lock").read_text()
    assert "harbor==0.26.0" in text
    assert "://" not in text
    pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert pins
    for pin in pins:
        assert "==" in pin
        assert pin.endswith("\\"), f"{pin} has no hash"


def test_the_installed_folder_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import app

    package = tmp_path / "site" / "app"
    package.mkdir(parents=True)
    monkeypatch.setattr(app, "__file__", str(package / "__init__.py"))
    with pytest.raises(locate.HarnessMissing, match="install Seatrial again"):
        locate.patches_folder()
    (package / "_harbor_patches").mkdir()
    (package / "_harbor_patches" / "build.py").touch()
    assert locate.patches_folder() == package / "_harbor_patches"


@pytest.mark.harness
def test_the_control_plane_never_imports_harbor() -> None:
    script = "import sys, workers.dispatcher.harness.trial, workers.dispatcher.harness.server; print('harbor' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.harness
def test_both_sides_speak_from_one_file(run_script: Run, built: locate.Harness) -> None:
    site = next(built.python.parents[1].glob("lib/python*/site-packages"))
    theirs = (site / "seatrial_harness" / "wire.py").read_bytes()
    assert theirs == (ROOT / "workers" / "dispatcher" / "harness" / "wire.py").read_bytes()
