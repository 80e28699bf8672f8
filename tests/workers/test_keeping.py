"""What an agent left is kept within bounds, whatever it left; what is not kept is counted."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app import ids
from app.objects import keys
from app.objects.port import ObjectStore
from app.objects.store import open_store
from app.vault.redaction import NOTHING, Secrets
from workers.dispatcher import keeping


@pytest.fixture
async def objects(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    async with open_store(f"file://{tmp_path / 'objects'}") as store:
        yield store


@pytest.fixture
def left(tmp_path: Path) -> Path:
    (tmp_path / "log").write_text("")
    folder = tmp_path / "left"
    folder.mkdir()
    return folder


async def kept(objects: ObjectStore, left: Path, secrets: Secrets = NOTHING) -> keeping.Kept:
    return await keeping.keep(objects, ids.new("execution"), left, left.parent / "log", secrets)


async def test_any_number_of_links_leaves_a_bounded_list_and_their_count(objects: ObjectStore, left: Path) -> None:
    for number in range(keeping.OMITTED_LIMIT + 500):
        (left / f"{number:06}-{'x' * 200}").symlink_to("/etc/passwd")
    found = await kept(objects, left)
    assert (found.files, found.omitted_count) == ((), keeping.OMITTED_LIMIT + 500)
    assert [name[:6] for name in found.omitted] == [f"{number:06}" for number in range(keeping.OMITTED_LIMIT)]


async def test_a_deep_name_is_cut(objects: ObjectStore, left: Path) -> None:
    folder = left
    for _ in range(10):
        folder /= "d" * 200
    folder.mkdir(parents=True)
    (folder / "link").symlink_to("nowhere")
    found = await kept(objects, left)
    assert [len(name) for name in found.omitted] == [keeping.OMITTED_CHARACTERS]


async def test_what_is_no_regular_file_is_omitted_and_never_opened(objects: ObjectStore, left: Path) -> None:
    os.mkfifo(left / "pipe")
    (left / "folder").symlink_to("/")
    Path(os.fsdecode(os.fsencode(left) + b"/\xff")).write_text("no name for JSON")
    (left / "kept").write_text("x")
    found = await kept(objects, left)
    assert [one.path for one in found.files] == ["kept"]
    assert found.omitted == ("folder", "pipe", "\\udcff")


async def test_a_file_that_became_something_else_since_it_was_listed_is_omitted(
    objects: ObjectStore, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process of the agent that outlived it: nothing waits for its pipe, and nothing follows its link."""
    for name in ("gone", "kept", "link", "pipe"):
        (left / name).write_text(name)
    listed = keeping._walk(left)
    for name in ("gone", "link", "pipe"):
        (left / name).unlink()
    os.mkfifo(left / "pipe")
    (left / "link").symlink_to("/etc/passwd")
    monkeypatch.setattr(keeping, "_walk", lambda folder: listed)
    found = await kept(objects, left)
    assert [file.path for file in found.files] == ["kept"]
    assert (found.omitted, found.omitted_count) == (("gone", "link", "pipe"), 3)


async def test_files_beyond_the_limits_are_omitted(
    objects: ObjectStore, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "FILES_LIMIT", 2)
    monkeypatch.setattr(keeping, "FILE_LIMIT_BYTES", 10)
    (left / "a").write_bytes(b"0" * 11)
    for name in "bcd":
        (left / name).write_bytes(b"0")
    found = await kept(objects, left)
    assert ([one.path for one in found.files], found.omitted, found.omitted_count) == (["b", "c"], ("a", "d"), 2)


async def test_a_file_made_to_exhaust_the_redactor_is_kept(objects: ObjectStore, left: Path) -> None:
    (left / "keys").write_bytes((b"-----BEGIN PRIVATE KEY-----" * 2000 + b"\n") * 10)
    (left / "secret").write_bytes(b"it is hunter2hunter2, they say\n")
    found = await kept(objects, left, Secrets(["hunter2hunter2"]))
    content = {one.path: b"".join([part async for part in objects.open(keys.blob(one.sha256))]) for one in found.files}
    assert b"PRIVATE KEY" not in content["keys"]
    assert content["secret"] == b"it is [redacted], they say\n"
