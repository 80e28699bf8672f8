"""Debian packages: where this machine gets them, and how to install or unpack some without changing its configuration.

The mirror is read from the machine's own sources, never written down. Packages of the next Debian release are taken
through a private apt configuration that lives for one call, so that nothing is left under /etc.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from app.local.errors import ToolMissing

ETC = Path("/etc/apt")
LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)$")
STANZA_FIELD = re.compile(r"^(?P<name>[A-Za-z-]+):\s*(?P<value>.*)$")


class Source(msgspec.Struct, frozen=True):
    """One archive that apt fetches from."""

    uri: str
    suite: str
    components: str
    signed_by: str = ""
    trusted: bool = False

    def stanza(self) -> str:
        lines = ["Types: deb", f"URIs: {self.uri}", f"Suites: {self.suite}", f"Components: {self.components}"]
        if self.signed_by:
            lines.append(f"Signed-By: {self.signed_by}")
        if self.trusted:
            lines.append("Trusted: yes")
        return "\n".join(lines) + "\n"

    def line(self) -> str:
        options = [f"signed-by={self.signed_by}"] * bool(self.signed_by) + ["trusted=yes"] * self.trusted
        prefix = f"[{' '.join(options)}] " if options else ""
        return f"deb {prefix}{self.uri} {self.suite} {self.components}"


class Release(msgspec.Struct, frozen=True):
    """What /etc/os-release says: `distribution` (debian, ubuntu, …), `family` (the ones it derives from), `codename`."""

    distribution: str
    family: tuple[str, ...]
    codename: str

    @property
    def is_debian_like(self) -> bool:
        return "debian" in (self.distribution, *self.family)


def release(path: Path = Path("/etc/os-release")) -> Release:
    fields: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, found, value = line.partition("=")
        if found:
            fields[name] = value.strip().strip("\"'")
    return Release(
        distribution=fields.get("ID", ""),
        family=tuple(fields.get("ID_LIKE", "").split()),
        codename=fields.get("VERSION_CODENAME", ""),
    )


def sources(folder: Path = ETC) -> list[Source]:
    """The enabled binary archives of this machine, in both formats of sources.list(5)."""
    found: list[Source] = []
    parts = sorted((folder / "sources.list.d").glob("*")) if (folder / "sources.list.d").is_dir() else []
    for path in [folder / "sources.list", *parts]:
        if not path.is_file():
            continue
        if path.suffix == ".list":
            found += _one_line_sources(path.read_text())
        elif path.suffix == ".sources":
            found += _deb822_sources(path.read_text())
    return found


def main_archive(found: Sequence[Source], codename: str) -> Source | None:
    """The archive that holds the release itself (not its updates or security fixes)."""
    return next((source for source in found if source.suite == codename and "main" in source.components.split()), None)


def has_apt() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


class Apt(msgspec.Struct, frozen=True):
    """apt-get with a private configuration: `options` are its `-o` arguments."""

    options: tuple[str, ...]

    def update(self) -> None:
        run(["apt-get", *self.options, "update", "-qq"], timeout=300)

    def install(self, packages: Sequence[str]) -> None:
        """Install `packages` (`name` or `name/suite`) with what they need, nothing that they merely recommend; remove nothing."""
        arguments = ["install", "-y", "-qq", "--no-install-recommends", "--no-remove", *packages]
        run(["apt-get", *self.options, "-o", "DPkg::Lock::Timeout=300", *arguments], timeout=1200)

    def unpack(self, packages: Sequence[str], destination: Path) -> None:
        """Fetch `packages` alone and unpack their files under `destination`: needs no right to install."""
        with tempfile.TemporaryDirectory() as folder:
            run(["apt-get", *self.options, "download", "-qq", *packages], timeout=300, cwd=folder)
            for archive in sorted(Path(folder).glob("*.deb")):
                run(["dpkg-deb", "-x", str(archive), str(destination)], timeout=120)


@contextmanager
def private(extra: Sequence[Source] = ()) -> Generator[Apt]:
    """An `Apt` that sees this machine's Debian archives and `extra`, the latter only for packages asked for by suite.

    Lists are kept in a folder of its own for the length of the call; the package database and the cache of archives are the
    system's.
    """
    if not has_apt():
        raise ToolMissing("This machine has no apt-get; install the packages that the message before names by hand.")
    with tempfile.TemporaryDirectory(prefix="seatrial-apt-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt fetches as user _apt
        parts, preferences, lists = folder / "sources.list.d", folder / "preferences.d", folder / "lists"
        for path in (parts, preferences, lists / "partial"):
            path.mkdir(parents=True)
        codename = release().codename
        own = [source for source in sources() if source.suite.partition("-")[0] == codename]  # no third party's archive
        everything = [*own, *extra]
        (parts / "all.sources").write_text("\n".join(source.stanza() for source in everything))
        for source in extra:
            pin = f"Package: *\nPin: release n={source.suite}\nPin-Priority: 100\n"
            (preferences / source.suite).write_text(pin)
        values = {
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": str(parts),
            "Dir::Etc::PreferencesParts": str(preferences),
            "Dir::State::Lists": str(lists),
            "APT::Install-Suggests": "false",
            "Acquire::Retries": "3",
        }
        yield Apt(options=tuple(argument for key, value in values.items() for argument in ("-o", f"{key}={value}")))


class CommandFailed(Exception):
    """A command ended with an error. `line` is the last line that it wrote."""

    def __init__(self, arguments: Sequence[str], line: str) -> None:
        super().__init__(f"{arguments[0]}: {line}")
        self.line = line


def run(arguments: Sequence[str], *, timeout: float, cwd: str | None = None) -> None:
    """Run a command in the C locale with no input. Raises CommandFailed with its most telling line."""
    environment: Mapping[str, str] = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(arguments, f"no end within {timeout:.0f} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith("E:")] or lines
        raise CommandFailed(arguments, telling[-1] if telling else f"exit {done.returncode}")


def _one_line_sources(text: str) -> list[Source]:
    found: list[Source] = []
    for line in text.splitlines():
        match = LINE.match(line.partition("#")[0].strip())
        if match is None:
            continue
        options: dict[str, str] = {}
        for option in str(match["options"] or "").split():
            name, _, value = option.partition("=")
            options[name] = value
        trusted = options.get("trusted") == "yes"
        found.append(Source(match["uri"], match["suite"], match["components"], options.get("signed-by", ""), trusted))
    return found


def _deb822_sources(text: str) -> list[Source]:
    found: list[Source] = []
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and name:
                fields[name] += "\n" + line.strip()
            elif match := STANZA_FIELD.match(line):
                name = match["name"].lower()
                fields[name] = match["value"].strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        signed_by = fields.get("signed-by", "")
        signed_by = signed_by if "\n" not in signed_by else ""  # a key written into the stanza itself
        found += [
            Source(uri, suite, fields.get("components", ""), signed_by, fields.get("trusted", "").lower() == "yes")
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return found
