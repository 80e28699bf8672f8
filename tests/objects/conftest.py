"""The S3 server that the tests of this room share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.versitygw import ACCESS_KEY, SECRET_KEY, S3Server, s3_server

pytest.register_assert_rewrite("tests.conformance.object_stores")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        yield server


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> Path:
    """The folder of an empty bucket, which has its name."""
    folder = s3.data / f"test-{abs(hash(request.node.nodeid)):x}"
    folder.mkdir()
    return folder
