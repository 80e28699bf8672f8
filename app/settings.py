"""What an operator can set: `SEATRIAL_<NAME>` in the environment, or `SEATRIAL_<NAME>_FILE` naming a file that holds it.

Nothing has to be set. A variable that nobody reads is refused, because a misspelt one would otherwise be ignored.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

PREFIX = "SEATRIAL_"
URLS = ("database_url", "nats_url", "nats_relay_url", "objects_url", "docker_host", "public_url", "api_url")
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class SettingsInvalid(ValueError):
    """A setting has a value that cannot be used. Correct the variable that the message names."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    home: str = ""
    """The folder of local mode: databases, objects, keys, logs. Default: `~/.local/share/seatrial`."""
    instance: str = "local"
    """The name of this installation, shown in events and evidence. Sandboxes are labelled with the database's own id."""
    database_url: str = ""
    """postgresql://… of an external server. Empty: embedded."""
    nats_url: str = ""
    """nats://… of an external server. Empty: embedded."""
    nats_relay_url: str = ""
    """The same servers with the relay's own user, the only one who should be allowed to publish events. Empty: nats_url."""
    objects_url: str = ""
    """file:///folder or s3://bucket/prefix?endpoint=…&region=…. Empty: `<home>/objects`."""
    runtime: str = "docker"
    """Where sandboxes run: the name of an installed runtime (entry-point group `seatrial.runtimes`)."""
    docker_host: str = ""
    """unix:///… or tcp://… of a container engine. Empty: found, or installed by `seatrial up`."""
    harness_home: str = ""
    """Where the harness environment lives. Empty: `<home>/harness`."""
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 7070
    connections: Positive = 4_000
    """Connections that one API process takes at a time, if the system lets it open so many files."""
    team_streams: Positive = 2_000
    """Event and log streams, and requests that wait, which one team may have open on one API process."""
    public_url: str = ""
    """How users reach the API. Empty: http://<host>:<port>."""
    api_url: str = ""
    """Where the command line finds the API. Empty: the server of `home`, started when none runs."""
    api_key: str = ""
    """What the command line shows to the API. Empty: the key of the local server."""
    slots: Positive = 4
    """Trials that one dispatcher runs at a time."""
    build_slots: Positive = 2
    lease_seconds: Seconds = 30.0
    beat_seconds: Seconds = 5.0
    drain_seconds: Seconds = 30.0
    upload_limit_bytes: Positive = 2 * 1024**3
    unconfined_agents: bool = False
    """Let agents by import path run as root, beside the keys, on a worker that is root and cannot confine them."""
    log_level: str = "info"
    log_json: bool = False

    @property
    def home_path(self) -> Path:
        if self.home:
            return Path(self.home).expanduser().absolute()
        return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "seatrial"

    @property
    def harness_path(self) -> Path:
        return Path(self.harness_home).expanduser().absolute() if self.harness_home else self.home_path / "harness"

    @property
    def objects(self) -> str:
        return self.objects_url or f"file://{self.home_path / 'objects'}"

    @property
    def base_url(self) -> str:
        return self.public_url or f"http://{self.http_host}:{self.http_port}"


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings. Raises SettingsInvalid, naming the variable but never its value."""
    environment = os.environ if environment is None else environment
    values: dict[str, str] = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name.endswith("_file") and name.removesuffix("_file") in Settings.__struct_fields__:
            try:
                values[name.removesuffix("_file")] = Path(value).read_text().strip()
            except OSError as error:
                raise SettingsInvalid(f"{variable}: {error.strerror}") from error
        elif name in Settings.__struct_fields__:
            values[name] = value
        else:
            raise SettingsInvalid(f"{variable} is not a setting; {_known(name)}")
    for name in URLS:
        if (value := values.get(name)) and not _is_url(value):
            raise SettingsInvalid(
                f"{PREFIX}{name.upper()}: is not a URL that can be read; write characters like / # ? @ in its password with %"
            )
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        name = str(error).partition(" - at `$.")[2].rstrip("`")
        raise SettingsInvalid(f"{PREFIX}{name.upper()}: must be {_wanted(name)}") from error


def _is_url(value: str) -> bool:
    """Whether its host and port can be told from its password: whoever reads it later shows in an error what it takes for
    the port. A server may be several, separated by commas."""
    import re
    from urllib.parse import urlsplit

    try:
        for url in map(urlsplit, re.split(r",(?=[a-z]+://)", value)):
            hosts = url.netloc.rpartition("@")[2].split(",")
            if any(urlsplit(f"//{host}").port == 0 for host in hosts):
                return False
            if url.scheme in ("postgres", "postgresql", "nats", "tls") and (
                f"{url.scheme}://" not in value or "@" in url.path + url.query + url.fragment
            ):
                return False
    except ValueError:
        return False
    return True


def _known(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, Settings.__struct_fields__, n=1)
    if near:
        return f"did you mean {PREFIX}{near[0].upper()}?"
    return f"known after {PREFIX}: {', '.join(field.upper() for field in Settings.__struct_fields__)}"


def _wanted(name: str) -> str:
    """What the value of a setting must be, in words."""
    from msgspec import inspect

    field = next(field for field in msgspec.structs.fields(Settings) if field.name == name)
    match inspect.type_info(field.type):
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=least, le=most):
            return (
                f"a whole number from {least} to {most}" if most is not None else f"a whole number of at least {least}"
            )
        case inspect.FloatType():
            return "a number above 0"
        case _:
            return "text"
