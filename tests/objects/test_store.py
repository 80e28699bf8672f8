"""From a URL to a store."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.objects import StoreUrlInvalid, open_store
from app.settings import Settings
from tests.conformance.object_stores import ROOT


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "file:///folder or s3://"),
        ("/var/objects", "file:///folder or s3://"),
        ("file:/var/objects", "file:///folder or s3://"),
        ("file://objects", "absolute folder"),
        ("gs://bucket", "file:///folder or s3://"),
        ("s3://", "names a bucket"),
        ("s3:///prefix", "names a bucket"),
        ("s3://bucket?zone=here", "endpoint and region, not zone"),
        ("s3://bucket?endpoint=localhost:9000", "starts with http"),
        ("s3://bucket/a/../b", "the prefix"),
        ("s3://bucket/.hidden", "the prefix"),
    ],
)
async def test_a_url_that_cannot_be_used_says_why(url: str, says: str) -> None:
    with pytest.raises(StoreUrlInvalid, match=says):
        async with open_store(url):
            pass


async def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(StoreUrlInvalid, match="carries no credentials") as caught:
        async with open_store("s3://AKIAEXAMPLE:sesame@bucket/prefix"):
            pass
    assert "AKIAEXAMPLE" not in str(caught.value)
    assert "sesame" not in str(caught.value)


async def test_the_default_is_a_folder_of_the_home(tmp_path: Path) -> None:
    async with open_store(Settings(home=str(tmp_path / "my home %41")).objects) as store:
        stored = await store.put_new("executions/a", b"x")
    assert (tmp_path / "my home %41" / "objects" / stored.key).read_bytes() == b"x"


def test_the_library_of_s3_is_loaded_by_who_uses_it() -> None:
    script = "import sys, app.objects; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    assert not {"aioboto3", "aiobotocore", "botocore", "boto3", "aiohttp"} & set(loaded.split())
