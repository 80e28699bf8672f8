"""One pack, however it was packed: the same listing, the same tree."""

import io
import os
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from app.archives.folder import folder_listing, pack_folder
from app.archives.read import FIXED_TIME, extract, scan
from app.archives.refusal import ArchiveRefused, Code
from tests.archives import samples

ARCHIVES = {
    "tar": lambda: samples.tar(samples.pack_items()),
    "tar with a top folder": lambda: samples.tar(samples.pack_items("hello/")),
    "tar with ./": lambda: samples.tar(samples.pack_items("./")),
    "GNU tar": lambda: samples.tar(samples.pack_items(), tarfile.GNU_FORMAT),
    "ustar": lambda: samples.tar(samples.pack_items(), tarfile.USTAR_FORMAT),
    "gzip": lambda: samples.gz(samples.tar(samples.pack_items("hello/"))),
    "gzip in two members": lambda: split_gzip(samples.tar(samples.pack_items())),
    "zstd": lambda: samples.zst(samples.tar(samples.pack_items())),
    "zstd in two frames": lambda: split_zstd(samples.tar(samples.pack_items())),
    "zip": samples.pack_zip,
    "zip with a top folder": lambda: samples.pack_zip("hello/"),
    "zip written as a stream": lambda: streamed_zip(),
}


def split_gzip(data: bytes) -> bytes:
    return samples.gz(data[:700]) + samples.gz(data[700:])


def split_zstd(data: bytes) -> bytes:
    return samples.zst(data[:700]) + samples.zst(data[700:])


def streamed_zip() -> bytes:
    """As written to a pipe: sizes and CRC follow the content (flag bit 3)."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:
            self.data += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in samples.PACK.items():
            member = zipfile.ZipInfo(path)
            member.create_system, member.external_attr = (
                3,
                0o100755 << 16 if path in samples.EXECUTABLE else 0o100644 << 16,
            )
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return pipe.data


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_archive_of_a_pack_has_the_folder_s_listing_and_tree(name: str, tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    expected = folder_listing(folder)
    path = samples.written(tmp_path, ARCHIVES[name]())
    scanned = scan(path)
    assert (scanned.digest, scanned.files) == (expected.digest, expected.files)
    assert scanned.root == ("hello" if "top folder" in name or name == "gzip" else "")
    assert extract(path, tmp_path / "out") == scanned
    assert folder_listing(tmp_path / "out") == expected
    assert (tmp_path / "out" / "tests" / "test.sh").stat().st_mode & 0o777 == 0o755


def test_real_tar_and_our_writer_agree(tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    with (tmp_path / "ours").open("wb") as out:
        packed = pack_folder(folder, out)
    subprocess.run(["tar", "--zstd", "-xf", tmp_path / "ours", "--one-top-level=theirs"], cwd=tmp_path, check=True)
    assert folder_listing(tmp_path / "theirs") == packed == scan(tmp_path / "ours")
    subprocess.run(["tar", "-czf", tmp_path / "theirs.tgz", "-C", folder, "."], check=True)
    assert scan(tmp_path / "theirs.tgz").digest == packed.digest


def test_long_and_foreign_names_survive_both_ways(tmp_path: Path) -> None:
    folder = samples.pack_folder_at(tmp_path / "pack")
    deep = folder / ("d" * 120) / ("é" * 60)
    deep.mkdir(parents=True)
    (deep / "水.txt").write_bytes(b"x" * 3000)
    with (tmp_path / "ours").open("wb") as out:
        packed = pack_folder(folder, out)
    for format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=format) as archive:
            archive.add(folder, ".")
        assert scan(samples.written(tmp_path, data.getvalue())).digest == packed.digest
    assert scan(tmp_path / "ours") == packed


def test_what_tools_leave_behind_is_no_part_of_a_pack(tmp_path: Path) -> None:
    clean = scan(samples.written(tmp_path, samples.tar(samples.pack_items())))
    extra = [
        samples.file(".git/config", b"[core]"),
        samples.file("tests/__pycache__/a.pyc", b"x"),
        samples.file("__MACOSX/._task.toml", b"x"),
        (samples.info(".git/link", tarfile.SYMTYPE, link="/etc/passwd"), b""),
    ]
    dirty = scan(samples.written(tmp_path, samples.tar([*samples.pack_items(), *extra])))
    assert dirty.digest == clean.digest
    assert dirty.left_out == 4


def test_an_empty_folder_is_no_part_of_a_pack(tmp_path: Path) -> None:
    clean = scan(samples.written(tmp_path, samples.tar(samples.pack_items())))
    items = [*samples.pack_items(), (samples.info("environment/empty", tarfile.DIRTYPE, mode=0o755), b"")]
    path = samples.written(tmp_path, samples.tar(items))
    assert extract(path, tmp_path / "out").digest == clean.digest
    assert not (tmp_path / "out" / "environment" / "empty").exists()


def test_mode_and_content_and_name_are_part_of_the_digest(tmp_path: Path) -> None:
    def digest(items: list[samples.Item]) -> str:
        return scan(samples.written(tmp_path, samples.tar(items))).digest

    original = samples.pack_items()
    digests = {
        digest(original),
        digest([*original[1:], samples.file("task.toml", samples.PACK["task.toml"], 0o755)]),
        digest([*original, samples.file("more", b"")]),
        digest([*original[:-1], samples.file("tests/test.sh", b"exit 0\n", 0o755)]),
        digest([*original[:-1], samples.file("tests/test.sH", samples.PACK["tests/test.sh"], 0o755)]),
    }
    assert len(digests) == 5
    assert digest(original[::-1]) in digests


def test_a_tree_has_fixed_times_and_modes_whatever_the_umask(tmp_path: Path) -> None:
    path = samples.written(tmp_path, samples.tar(samples.pack_items()))
    before = os.umask(0o077)
    try:
        extract(path, tmp_path / "out")
    finally:
        os.umask(before)
    for found in [tmp_path / "out", *(tmp_path / "out").rglob("*")]:
        mode = stat.S_IMODE(found.stat().st_mode)
        assert mode == (0o755 if found.is_dir() or found.name == "test.sh" else 0o644)
        assert found.is_dir() or found.stat().st_mtime == FIXED_TIME


def test_a_refused_archive_leaves_nothing_on_disk(tmp_path: Path) -> None:
    items = [*samples.pack_items(), (samples.info("x", tarfile.SYMTYPE, link="/etc/passwd"), b"")]
    path = samples.written(tmp_path, samples.tar(items))
    with pytest.raises(ArchiveRefused):
        extract(path, tmp_path / "out")
    assert os.listdir(tmp_path) == ["archive"]


def test_an_existing_destination_is_not_touched(tmp_path: Path) -> None:
    path = samples.written(tmp_path, samples.tar(samples.pack_items()))
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError):
        extract(path, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        extract(path, tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("paths", [["a.txt"], ["a/task.toml", "b/x"], ["a/b/task.toml"]])
def test_an_archive_without_a_task_is_refused(paths: list[str], tmp_path: Path) -> None:
    path = samples.written(tmp_path, samples.tar([samples.file(name) for name in paths]))
    with pytest.raises(ArchiveRefused) as refused:
        scan(path)
    assert refused.value.code is Code.NO_TASK
    assert scan(path, marker=None).paths == set(paths)
