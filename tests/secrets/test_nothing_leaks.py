"""No secret of the operator, of the installation or of a request is in anything that Seatrial writes down or shows."""

import stat
from pathlib import Path

import pytest

from tests.secrets.searching import Searcher
from tests.secrets.story import KINDS, Story, is_open_to_others

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]

SECRET_FILES = (
    "keys/local-admin",
    "keys/signing.pem",
    "nats/nats.conf",
    "nats/relay-password",
    "nats/worker-password",
    "postgres/password",
    "run/database-url",
    "run/nats-relay-url",
    "run/nats-url",
)
MARKED = ("sandbox", "database", "JetStream", "objects", "archives", "answers", "command line")
"""Where the agents' own words stand, and so a secret that they had got hold of would."""


@pytest.mark.parametrize("kind", KINDS)
async def test_no_secret_is_in(kind: str, story: Story) -> None:
    assert story.places[kind], "there was something to look at"
    assert any(content for _, content in story.places[kind])
    found = story.found(kind)
    assert not found, "\n".join(sorted({f"{where[-100:]}: {what.secret}, {what.form}" for where, what in found}))


async def test_no_secret_is_in_the_memory_of_a_harness_child(story: Story) -> None:
    found = [
        (where, what) for where, content in story.memory for what in Searcher(story.secrets).search_memory(content)
    ]
    assert found == []
    assert Searcher({"marker": story.marker.encode()}).search_memory(story.memory[0][1]), "which is what was looked at"


@pytest.mark.parametrize("kind", MARKED)
async def test_what_is_no_secret_is_found_where_secrets_are_looked_for(kind: str, story: Story) -> None:
    assert story.marked(kind)


async def test_the_runs_went_as_they_should(story: Story) -> None:
    assert {name: run["outcome"] for name, run in story.runs.items()} == {
        "oracle": "succeeded",
        "dump": "succeeded",
        "breaks": "failed",
        "waits": "cancelled",
    }
    assert story.seen, "the agent has looked around"
    assert not [one for one in story.problems if one[1] != 200 and not 400 <= one[1] < 500]
    assert not [one for one in story.problems if one[1] < 400 and not one[0].startswith("GET")]


async def test_the_home_is_closed_to_others(story: Story) -> None:
    """Under root other accounts may walk through it (Postgres runs as one), and read nothing."""
    open_folders = {"", "postgres"} | {
        name for name, mode in story.modes.items() if stat.S_ISDIR(mode) and mode & 0o001
    }
    reachable = [
        f"{name} {stat.S_IMODE(mode):o}"
        for name, mode in story.modes.items()
        if stat.S_ISREG(mode) and is_open_to_others(mode) and all(part in open_folders for part in _parents(name))
    ]
    assert reachable == []
    for name in SECRET_FILES:
        assert stat.S_IMODE(story.modes[name]) == 0o600, name


async def test_no_process_leaves_a_core_dump(story: Story) -> None:
    assert story.core_limits
    for name, line in story.core_limits.items():
        assert line.split()[4:6] == ["0", "0"], name


async def test_the_harness_has_no_secret_file_open_and_sees_none(story: Story) -> None:
    homes = [name for name in story.open_files if name.endswith(tuple(SECRET_FILES)) or "docker.sock" in name]
    assert homes == []
    assert not [name for name in SECRET_FILES if f"{name}\n" in story.seen], (
        "what it could read has its name and then its text"
    )
    assert "the engine answers" not in story.seen


def _parents(name: str) -> list[str]:
    return [str(parent) for parent in Path(name).parents if str(parent) != "."]
