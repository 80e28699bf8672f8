"""The store on local files: the conformance suite, and what only files can get wrong."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.objects import ObjectMissing, ObjectStore, StoreUnavailable, open_store
from app.objects.files import DIGEST_ATTRIBUTE
from tests.conformance.object_stores import (
    LARGE,
    ROOT,
    ObjectStoreConformance,
    chunks,
    descriptors,
    in_future,
    keys_of,
    sha256,
    whole,
)

FULL = """
import asyncio, pathlib, sys
from app.objects import StoreFull, open_store

async def main(folder):
    async with open_store(f"file://{folder}") as store:
        kept = await store.put_new("executions/kept", b"k" * 1000)
        for content in (b"x" * 4_000_000, b"y" * 3_000_000):
            try:
                await store.put_blob(content)
            except StoreFull as error:
                print("full:", error)
        print([key async for key in store.list("")], list(pathlib.Path(folder, ".tmp").iterdir()))
        print((await store.put_blob(b"x" * 500_000)).size_bytes, await store.stat(kept.key) == kept)

asyncio.run(main(sys.argv[1]))
"""


class TestFileStore(ObjectStoreConformance):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "objects"

    @pytest.fixture
    def url(self, folder: Path) -> str:
        return f"file://{folder}"

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[ObjectStore]:
        async with open_store(url) as store:
            yield store

    async def test_others_on_the_machine_read_nothing(self, store: ObjectStore, folder: Path) -> None:
        await store.put_new("executions/a/b", b"x")
        for path in (folder, *folder.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path

    async def test_a_missing_folder_is_an_empty_store(self, store: ObjectStore, folder: Path) -> None:
        assert await keys_of(store) == []
        assert await store.stat("executions/a") is None
        assert await store.sweep(before=in_future()) == 0
        assert not folder.exists()

    async def test_empty_folders_are_removed_with_their_last_object(self, store: ObjectStore, folder: Path) -> None:
        await store.put_new("executions/a/b", b"x")
        await store.put_new("executions/c", b"x")
        await store.delete("executions/a/b")
        assert sorted(path.name for path in folder.rglob("*")) == [".tmp", "c", "executions"]

    async def test_no_link_leads_out_of_the_store(self, store: ObjectStore, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        await store.put_new("executions/a", b"x")
        (folder / "executions" / "link").symlink_to(tmp_path / "secret")
        with pytest.raises((ObjectMissing, StoreUnavailable)):
            await whole(store, "executions/link")
        assert await keys_of(store) == ["executions/a"]

    async def test_the_digest_survives_a_copy_that_loses_attributes(self, store: ObjectStore, folder: Path) -> None:
        stored = await store.put_new("executions/a", chunks(LARGE))
        assert os.getxattr(folder / stored.key, DIGEST_ATTRIBUTE).decode() == stored.sha256
        os.removexattr(folder / stored.key, DIGEST_ATTRIBUTE)
        assert await store.stat(stored.key) == stored

    async def test_a_folder_in_the_way_is_told(self, store: ObjectStore, folder: Path) -> None:
        folder.parent.mkdir(exist_ok=True)
        folder.write_text("not a folder")
        with pytest.raises(StoreUnavailable, match=f"{folder}"):
            await store.put_blob(b"x")

    async def test_no_descriptor_is_lost_to_a_cancel(self, store: ObjectStore) -> None:
        blob = await store.put_blob(LARGE)
        before = descriptors()
        for turns in range(30):  # cancelled at another step each time
            writing = asyncio.create_task(store.put_blob(chunks(LARGE[: 3 * 1024 * 1024])))
            reading = asyncio.create_task(whole(store, blob.key))
            for _ in range(turns):
                await asyncio.sleep(0)
            writing.cancel()
            reading.cancel()
            await asyncio.wait([writing, reading])
        assert descriptors() == before
        assert await store.sweep(before=in_future()) == 0

    def test_a_full_disk_is_told_and_frees_itself(self, tmp_path: Path) -> None:
        (tmp_path / "full").mkdir()
        enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
        mount = 'mount -t tmpfs -o size=2m none "$1" && exec "$2" -c "$3" "$1"'
        command = [*enter, "sh", "-c", mount, "sh", str(tmp_path / "full"), sys.executable, FULL]
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        full = f"full: no space left in {tmp_path}/full"
        assert done.stdout.splitlines() == [full, full, "['executions/kept'] []", "500000 True"]

    async def test_a_name_is_on_the_disk_before_it_is_answered(self, store: ObjectStore, folder: Path) -> None:
        """What a power cut keeps is what was flushed: the file, then each folder that got a name."""
        script = (
            "import asyncio, sys\nfrom app.objects import open_store\n"
            "async def main():\n"
            "    async with open_store(sys.argv[1]) as store:\n"
            "        print((await store.put_new('executions/a', b'x')).sha256, flush=True)\n"
            "asyncio.run(main())\n"
        )
        audit = (
            "import os, sys\nnames = {}\n"
            "original = os.fsync\n"
            "def fsync(descriptor):\n"
            "    print('fsync', os.readlink(f'/proc/self/fd/{descriptor}'), flush=True)\n"
            "    return original(descriptor)\n"
            "os.fsync = fsync\n"
            "sys.addaudithook(lambda event, arguments: event == 'os.link' and print('link', arguments[1], flush=True))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", audit + script, f"file://{folder}"],
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=True,
        )
        lines = [line for line in done.stdout.splitlines() if "/.tmp" not in line or line.startswith("fsync")]
        link = lines.index(f"link {folder}/executions/a")
        assert any(line.startswith(f"fsync {folder}/.tmp/") for line in lines[:link]), "the bytes"
        assert f"fsync {folder}" in lines[:link], "the folder of the folder"
        assert lines[link + 1 :] == [f"fsync {folder}/executions", sha256(b"x")]
