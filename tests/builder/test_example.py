"""The example pack does what it says, without any harness: its solution earns the reward, doing nothing does not."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app import ids
from app.archives.folder import pack_folder
from app.archives.read import extract
from app.domain.pack import FromDockerfile
from app.domain.pack_parse import parse
from tests.conformance.build_backends import Lines
from workers.builder.build.docker import DockerBackend
from workers.builder.build.port import BuildSpec

pytestmark = pytest.mark.docker
EXAMPLE = Path(__file__).parents[2] / "examples" / "hello-world"


@pytest.fixture
async def backend(docker_host: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    opened = DockerBackend(docker_host, tmp_path / "scratch")
    yield opened
    await opened.close()


async def test_the_solution_scores_one_and_doing_nothing_zero(
    backend: DockerBackend, docker_host: str, tmp_path: Path
) -> None:
    from app.local.baseimage import DEBIAN_BASE, ensure_image
    from app.local.engine import ensure
    from app.settings import load

    ensure_image(ensure(load()), DEBIAN_BASE)
    with (tmp_path / "pack.tar.zst").open("wb") as out:
        pack_folder(EXAMPLE, out)
    listed = extract(tmp_path / "pack.tar.zst", tmp_path / "pack")
    pack = parse((tmp_path / "pack" / "task.toml").read_text(), listed.paths)
    assert isinstance(pack.image, FromDockerfile)
    spec = BuildSpec(
        revision=ids.new("revision"),
        team="tem_x",
        instance="test",
        pack_digest=listed.digest,
        context=tmp_path / "pack" / pack.image.folder,
        pull=False,
    )
    built = await backend.build(spec, Lines())
    assert built.image.workdir == "/app"
    try:
        for solve, reward in (("bash /solution/solve.sh", "1"), ("true", "0")):
            script = f"{solve} && mkdir -p /logs/verifier && bash /tests/test.sh && cat /logs/verifier/reward.txt"
            mounts = [f"--volume={tmp_path / 'pack' / name}:/{name}:ro" for name in ("solution", "tests")]
            command = ["docker", "--host", docker_host, "run", "--rm", "--network=none", *mounts]
            result = subprocess.run(
                [*command, built.image.reference, "bash", "-c", script], capture_output=True, text=True, check=True
            )
            assert result.stdout.splitlines()[-1] == reward
    finally:
        await backend.remove(spec.revision)
