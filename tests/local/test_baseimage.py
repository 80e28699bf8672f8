"""Base images that are made where no registry can be reached."""

import subprocess
import uuid
from collections.abc import Iterator

import pytest

from app.local import baseimage
from app.local.baseimage import DEBIAN_BASE, TEST_BASE, ensure_image, find_image
from app.local.engine import Engine, probe
from app.local.errors import BaseImageUnavailable

pytestmark = pytest.mark.docker


@pytest.fixture
def engine(docker_host: str) -> Engine:
    return probe(docker_host)


@pytest.fixture
def spare(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name of the test base image's that no other test uses; removed at the end."""
    name = f"seatrial-test-base-{uuid.uuid4().hex[:12]}:1"
    monkeypatch.setattr(baseimage, "TEST_BASE", name)
    yield name
    baseimage._call(engine, "DELETE", f"/images/{name}")


def run(engine: Engine, image: str, script: str, *options: str) -> str:
    command = ["docker", "run", "--rm", "--pull=never", "--network=none", *options, image, "bash", "-c", script]
    done = subprocess.run(command, env={"DOCKER_HOST": engine.host}, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_test_base_is_made_once_and_then_found(engine: Engine, spare: str) -> None:
    assert find_image(engine, spare) is None
    said: list[str] = []
    made = ensure_image(engine, spare, progress=said.append)
    assert made.stand_in
    assert len(said) == 1
    assert ensure_image(engine, spare, progress=said.append) == made
    assert len(said) == 1, "nothing is made twice"


def test_the_test_base_has_what_packs_and_harness_need(engine: Engine) -> None:
    tools = (
        "for tool in bash sh tar awk sed grep mkdir base64 sleep env; do type $tool >/dev/null || echo no $tool; done"
    )
    assert run(engine, TEST_BASE, tools) == ""
    assert run(engine, TEST_BASE, "id -un; id -u; echo $HOME", "--user", "1000").split()[:2] == ["agent", "1000"]
    assert run(engine, TEST_BASE, "touch /tmp/a /home/agent/b && stat -c %a /tmp", "--user", "1000").strip() == "1777"
    assert "ID=seatrial-test" in run(engine, TEST_BASE, "cat /etc/os-release")


def test_an_image_that_can_neither_be_fetched_nor_made_is_named(engine: Engine) -> None:
    name = f"127.0.0.1:9/nothing-{uuid.uuid4().hex[:8]}:1"
    with pytest.raises(BaseImageUnavailable, match="docker load") as refusal:
        ensure_image(engine, name)
    assert name in str(refusal.value)


@pytest.mark.slow
def test_the_debian_base_has_apt_and_is_marked_when_it_was_made_here(engine: Engine) -> None:
    facts = ensure_image(engine, DEBIAN_BASE)
    assert "VERSION_CODENAME=bookworm" in run(engine, DEBIAN_BASE, "cat /etc/os-release")
    assert run(engine, DEBIAN_BASE, "command -v apt-get dpkg").split() == ["/usr/bin/apt-get", "/usr/bin/dpkg"]
    labels = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", DEBIAN_BASE],
        env={"DOCKER_HOST": engine.host},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (baseimage.LABEL in labels) == facts.stand_in
