"""Settings come from the environment; a wrong one is named, its value never shown."""

from pathlib import Path

import pytest

from app.settings import Settings, SettingsInvalid, load


def test_nothing_has_to_be_set() -> None:
    assert load({}) == Settings()


def test_a_variable_that_nobody_reads_is_refused_by_name() -> None:
    with pytest.raises(SettingsInvalid, match=r"SEATRIAL_SLOTZ is not a setting; did you mean SEATRIAL_SLOTS\?"):
        load({"SEATRIAL_SLOTZ": "3"})
    with pytest.raises(SettingsInvalid, match="SEATRIAL_NONSENSE is not a setting; known after SEATRIAL_: HOME, "):
        load({"SEATRIAL_NONSENSE": "3"})


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("SEATRIAL_SLOTS", "none", "a whole number of at least 1"),
        ("SEATRIAL_SLOTS", "0", "a whole number of at least 1"),
        ("SEATRIAL_HTTP_PORT", "70000", "a whole number from 0 to 65535"),
        ("SEATRIAL_HTTP_PORT", "abc", "a whole number from 0 to 65535"),
        ("SEATRIAL_LOG_JSON", "perhaps", "true or false"),
        ("SEATRIAL_LEASE_SECONDS", "0", "a number above 0"),
    ],
)
def test_a_wrong_value_is_refused_with_the_variables_name_and_what_is_wanted(
    variable: str, value: str, wanted: str
) -> None:
    """And without the value, which may be a secret."""
    with pytest.raises(SettingsInvalid) as refused:
        load({variable: value})
    assert str(refused.value) == f"{variable}: must be {wanted}"


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://u:secret@host/db\n")
    assert load({"SEATRIAL_DATABASE_URL_FILE": str(file)}).database_url == "postgresql://u:secret@host/db"
    with pytest.raises(SettingsInvalid, match="SEATRIAL_DATABASE_URL_FILE"):
        load({"SEATRIAL_DATABASE_URL_FILE": str(tmp_path / "missing")})


def test_other_variables_are_none_of_ours() -> None:
    assert load({"PATH": "/bin", "SEA": "1"}) == Settings()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SEATRIAL_DATABASE_URL", "postgresql://seatrial:pass/word@db/seatrial"),
        ("SEATRIAL_DATABASE_URL", "postgresql://seatrial:pass#word@db/seatrial"),
        ("SEATRIAL_DATABASE_URL", "postgresql://seatrial:1/word@db/seatrial"),
        ("SEATRIAL_DATABASE_URL", "postgresql://seatrial@db:password/seatrial"),
        ("SEATRIAL_DATABASE_URL", "postgresql:seatrial:password@db/seatrial"),
        ("SEATRIAL_NATS_URL", "nats://worker:pass?word@bus:4222"),
        ("SEATRIAL_NATS_RELAY_URL", "nats://one:4222,nats://relay:pass/word@two:4222"),
        ("SEATRIAL_API_URL", "http://user:pass/word@api"),
        ("SEATRIAL_API_URL", "http://[::1"),
    ],
)
def test_a_url_whose_password_would_be_taken_for_something_else_is_refused(variable: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{variable}: is not a URL") as refused:
        load({variable: value})
    assert "word" not in str(refused.value).replace("password with %", "")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SEATRIAL_DATABASE_URL", "postgresql://seatrial:pass%2Fw%40rd,@db:5432,db2:5433/seatrial?sslmode=require"),
        ("SEATRIAL_DATABASE_URL", "postgresql:///seatrial?host=/run/postgresql"),
        ("SEATRIAL_NATS_URL", "nats://worker:password@one:4222,nats://worker:password@two:4222"),
        ("SEATRIAL_NATS_URL", "nats://token@[::1]:4222"),
        ("SEATRIAL_OBJECTS_URL", "file:///folder/a@b"),
        ("SEATRIAL_OBJECTS_URL", "s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=r"),
        ("SEATRIAL_DOCKER_HOST", "unix:///var/run/docker.sock"),
    ],
)
def test_a_url_that_can_be_read_is_taken(variable: str, value: str) -> None:
    assert getattr(load({variable: value}), variable.removeprefix("SEATRIAL_").lower()) == value
