"""What a supervisor hands to its processes."""

import os
import stat
from pathlib import Path

import pytest

from app.local import steps
from app.local.errors import NoSpace
from app.settings import Settings, load


def test_a_child_loads_the_very_settings_that_it_was_given(tmp_path: Path) -> None:
    given = Settings(
        home=str(tmp_path),
        instance="here",
        database_url="postgresql://user:secret@127.0.0.1:5/base",
        nats_url="nats://worker:token@127.0.0.1:6",
        nats_relay_url="nats://relay:token@127.0.0.1:6",
        http_port=1234,
        slots=7,
        lease_seconds=1.5,
        log_json=True,
    )
    (tmp_path / "run").mkdir()
    urls = {"database-url": given.database_url, "nats-url": given.nats_url, "nats-relay-url": given.nats_relay_url}
    steps.write_urls(tmp_path, urls)
    environment = steps.environment_of(given, {"PATH": "/bin", "SEATRIAL_SLOTS": "99", "SEATRIAL_DATABASE_URL": "old"})
    assert load(environment) == given
    assert environment["PATH"] == "/bin"
    assert "secret" not in str(environment)
    assert "token" not in str(environment)


def test_the_key_of_whoever_starts_the_server_goes_to_none_of_its_processes(tmp_path: Path) -> None:
    given = Settings(home=str(tmp_path), api_url="https://elsewhere.example", api_key="sea_key_of_a_person")
    base = {"PATH": "/bin", "SEATRIAL_API_KEY": given.api_key, "SEATRIAL_API_URL": given.api_url}
    environment = steps.environment_of(given, base)
    assert "sea_key_of_a_person" not in str(environment)
    assert "elsewhere" not in str(environment)


def test_the_urls_are_the_owners_alone_and_written_only_when_they_change(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    steps.write_urls(tmp_path, {"database-url": "one", "nats-url": "two"})
    path = tmp_path / "run" / "database-url"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat().st_ino
    steps.write_urls(tmp_path, {"database-url": "one", "nats-url": "two"})
    assert path.stat().st_ino == before
    steps.write_urls(tmp_path, {"database-url": "three", "nats-url": "two"})
    assert path.read_text() == "three"


def test_a_home_is_closed_and_made_again_without_harm(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    for _ in range(2):
        steps.make_home(home)
    for name in ("run", "logs", "keys", "objects"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o700
    assert stat.S_IMODE(home.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


def test_too_little_disk_is_told_with_the_numbers_and_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "SPACE_BYTES", 10**18)
    with pytest.raises(NoSpace, match="SEATRIAL_HOME"):
        steps.make_home(tmp_path)
