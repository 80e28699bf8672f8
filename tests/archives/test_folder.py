"""A folder on this machine becomes the same bytes each time, and what the server would refuse is refused here."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.archives.folder import folder_listing, pack_folder
from app.archives.read import scan
from app.archives.refusal import ArchiveRefused, Code, Limits
from app.archives.write import TarWriter
from tests.archives import samples


def packed(folder: Path) -> bytes:
    out = io.BytesIO()
    pack_folder(folder, out)
    return out.getvalue()


def test_equal_folders_give_equal_bytes_whatever_their_times_owners_and_order(tmp_path: Path) -> None:
    first = samples.pack_folder_at(tmp_path / "first")
    second = tmp_path / "second"
    for path in reversed(samples.PACK):
        (second / path).parent.mkdir(parents=True, exist_ok=True)
        (second / path).write_bytes(samples.PACK[path])
        (second / path).chmod(0o700 if path in samples.EXECUTABLE else 0o600)
        os.utime(second / path, (1, 1))
    (second / ".git").mkdir()
    (second / ".git" / "config").write_text("x")
    (second / "empty").mkdir()
    assert packed(first) == packed(second)


def test_two_processes_give_equal_bytes(tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    code = "import sys, pathlib; from app.archives.folder import pack_folder; pack_folder(pathlib.Path(sys.argv[1]), sys.stdout.buffer)"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, folder],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_hidden_files_and_ignore_files_are_part_of_a_pack(tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    (folder / ".gitignore").write_text("*.toml\n")
    (folder / "environment" / ".dockerignore").write_text("*\n")
    (folder / "environment" / ".env").write_text("A=1\n")
    assert {".gitignore", "environment/.dockerignore", "environment/.env", "task.toml"} <= folder_listing(folder).paths


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("task.toml"), os.mkfifo])
def test_links_and_pipes_are_refused(make: object, tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    make(folder / "odd")  # type: ignore[operator]
    with pytest.raises(ArchiveRefused) as refused:
        pack_folder(folder, io.BytesIO())
    assert refused.value.code in (Code.LINK, Code.SPECIAL_FILE)
    assert refused.value.member == "odd"


def test_a_folder_beyond_the_limits_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(ArchiveRefused) as refused:
        folder_listing(folder)
    assert (refused.value.code, refused.value.member) == (Code.FILE_TOO_LARGE, "large")
    with pytest.raises(ArchiveRefused):
        folder_listing(folder, Limits(members=3))


def test_a_file_that_grows_while_it_is_read_is_noticed() -> None:
    writer = TarWriter(io.BytesIO())
    with pytest.raises(ValueError, match="changed while it was read"):
        writer.file("a", 3, [b"ab", b"cd"])
    with pytest.raises(ValueError, match="changed while it was read"):
        TarWriter(io.BytesIO()).file("a", 3, [b"ab"])


def test_the_pieces_that_come_do_not_change_the_bytes() -> None:
    content = os.urandom(70_000) + bytes(3_000_000) + b"text " * 100_000

    def written(piece: int) -> bytes:
        out = io.BytesIO()
        writer = TarWriter(out)
        writer.file("a", len(content), (content[at : at + piece] for at in range(0, len(content), piece)))
        writer.close()
        return out.getvalue()

    assert written(1000) == written(65_536) == written(10**7)


def test_the_command_line_can_import_it_fast() -> None:
    code = "import sys; import app.archives.folder; print(len(sys.modules)); print(any(m in sys.modules for m in ('asyncio', 'aiohttp', 'cyclonedx')))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert result.stdout.split()[1] == "False"


def test_scan_of_what_was_packed_is_what_was_said(tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    with (tmp_path / "archive").open("wb") as out:
        said = pack_folder(folder, out)
    assert scan(tmp_path / "archive") == said
