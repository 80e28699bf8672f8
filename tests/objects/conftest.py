"""The S3 server that the tests of this room share."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.objects.bucket import Bucket, open_bucket
from tests.engines.versitygw import ACCESS_KEY, SECRET_KEY, S3Server, s3_server

pytest.register_assert_rewrite("tests.conformance.object_stores")
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        yield server


@pytest.fixture(scope="session")
async def opened(s3: S3Server) -> AsyncIterator[Bucket]:
    """One bucket and one client for the session, as for a process: a client takes half a second to make."""
    (s3.data / "shared").mkdir()
    async with open_bucket("shared", endpoint=s3.endpoint, region=None) as bucket:
        yield bucket


@pytest.fixture
def prefix() -> str:
    """A part of that bucket for one test."""
    return f"tests/{next(_numbers)}/"


@pytest.fixture
def bucket(s3: S3Server) -> Path:
    """The folder of a fresh bucket, which has its name."""
    folder = s3.data / f"bucket-{next(_numbers)}"
    folder.mkdir()
    return folder
