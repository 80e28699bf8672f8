"""What comes out of a sandbox is unpacked as hostile input: nothing outside its folder, and no link or device anywhere."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.harbor_patches.conftest import Run

pytestmark = pytest.mark.harness

Member = tuple[str, bytes, dict[str, Any]]


def archive(path: Path, *members: Member) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content, fields in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return path


def test_only_files_and_folders_below_the_target_are_written(run_script: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("as it was")
    source = archive(
        tmp_path / "a.tar",
        ("./good.txt", b"good", {"mode": 0o6777}),
        ("deep/er/file", b"deep", {}),
        ("hard", b"", {"type": tarfile.LNKTYPE, "linkname": "./good.txt"}),
        ("hard-out", b"", {"type": tarfile.LNKTYPE, "linkname": "../outside/kept"}),
        ("/absolute", b"no", {}),
        ("../escape", b"no", {}),
        ("deep/../../escape2", b"no", {}),
        ("link", b"", {"type": tarfile.SYMTYPE, "linkname": str(outside)}),
        ("link/through", b"written through a link", {}),
        ("pipe", b"", {"type": tarfile.FIFOTYPE}),
        ("device", b"", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
        ("good.txt/below-a-file", b"no", {}),
        ("n" * 300, b"no", {}),
        ("last.txt", b"last", {}),
    )
    found = run_script("transfer.py", str(source), str(tmp_path / "target"))
    assert found["left_out"] == [
        "hard-out",
        "/absolute",
        "../escape",
        "deep/../../escape2",
        "link",
        "pipe",
        "device",
        "good.txt/below-a-file",
        "n" * 300,
    ]
    files = {name: content for name, (_, content) in found["there"].items() if content is not None}
    assert files == {
        "good.txt": "good",
        "deep/er/file": "deep",
        "hard": "good",
        "link/through": "written through a link",
        "last.txt": "last",
    }
    assert found["there"]["good.txt"][0] == "0o100755", "no set-user-id, nothing for others to write"
    assert sorted(p.name for p in outside.iterdir()) == ["kept"]
    assert (outside / "kept").read_text() == "as it was"
    assert not (tmp_path / "escape").exists()


def test_links_that_are_in_the_target_already_are_not_followed(run_script: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("as it was")
    target = tmp_path / "target"
    target.mkdir()
    (target / "folder").symlink_to(outside)
    (target / "file").symlink_to(outside / "file")
    source = archive(tmp_path / "a.tar", ("folder/new", b"no", {}), ("file", b"mine", {}))
    found = run_script("transfer.py", str(source), str(target))
    assert found["left_out"] == ["folder/new"]
    assert (target / "file").read_text() == "mine"
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("file", "as it was")]


def test_a_tree_that_is_too_deep_is_refused(run_script: Run, tmp_path: Path) -> None:
    source = archive(tmp_path / "a.tar", ("/".join("d" * 80), b"", {}))
    assert run_script("transfer.py", str(source), str(tmp_path / "t"))["left_out"] == ["TransferRefused"]
