"""What a Dockerfile builds on, read by BuildKit's own parser, so that no heredoc or continuation can fool us. Pure."""

import re
from typing import Any, Protocol, cast

import dockerfile as buildkit
import msgspec

DIRECTIVE = re.compile(r"^#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*$")
"""A parser directive; they count only in the first lines, before anything else."""
EXPANSION = re.compile(r"\\?\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
REMOTE = re.compile(r"(?:https?|git|ssh|ftp)://|git@|[^/\s]+\.git(?:#|$)|github\.com/", re.IGNORECASE)
INSTRUCTIONS = frozenset(
    {
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
    }
    | {"RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)


class DockerfileUnreadable(ValueError):
    """The Dockerfile cannot be parsed. The message says why, with the line where that is known."""


class Stage(msgspec.Struct, frozen=True):
    """From one FROM to the next."""

    base: str
    """The image or the earlier stage, with arguments filled in as far as their defaults are known."""
    base_stage: int | None
    """The place of the stage that it builds on; None when `base` is an image."""
    name: str | None
    line: int
    platform: str | None = None
    workdir: str | None = None
    """The last WORKDIR of the stage itself, as written."""
    user: str | None = None


class Dockerfile(msgspec.Struct, frozen=True):
    stages: tuple[Stage, ...]
    images: tuple[str, ...]
    """Every image that the build reads: of FROM, COPY --from and RUN --mount=from, sorted; `scratch` is none."""
    syntax: str | None
    """The frontend image that a `# syntax=` line asks for."""
    remotes: tuple[str, ...] = ()
    """What ADD fetches from elsewhere, in order. The engine does that itself, whatever network the steps have."""


class Command(Protocol):
    """What BuildKit's parser tells about one instruction."""

    cmd: str
    start_line: int
    flags: tuple[str, ...]
    value: tuple[str, ...]


def read(text: str) -> Dockerfile:
    """Raises DockerfileUnreadable."""
    stages: list[Stage] = []
    images: set[str] = set()
    arguments: dict[str, str] = {}
    remotes: list[str] = []
    for command in _commands(text):
        flags = _flags(command.flags)
        match command.cmd.upper():
            case "ARG" if not stages:
                for item in command.value:
                    name, given, default = item.partition("=")
                    if given:
                        arguments[name] = _expand(default.strip("\"'"), arguments)
            case "FROM":
                stage = _stage(command, flags, stages, arguments)
                stages.append(stage)
                if stage.base_stage is None:
                    images.add(stage.base)
            case name if name not in INSTRUCTIONS:
                raise DockerfileUnreadable(f"line {command.start_line}: there is no instruction {name[:40]}")
            case _ if not stages:
                if command.cmd.upper() != "ARG":
                    raise DockerfileUnreadable(f"line {command.start_line}: nothing but ARG may stand before FROM")
            case "WORKDIR" | "USER" as name:
                value = command.value[0] if command.value else ""
                stages[-1] = msgspec.structs.replace(stages[-1], **{name.lower(): value})
            case "COPY" if "from" in flags:
                images |= _from(flags["from"], stages)
            case "ADD":
                # Until arguments of stages are followed too, a source that holds one may be anything.
                remotes += (source for source in command.value[:-1] if REMOTE.match(source) or "$" in source)
            case "RUN":
                for mount in (flag.removeprefix("--mount=") for flag in command.flags if flag.startswith("--mount=")):
                    images |= _from(_flags(tuple(mount.split(","))).get("from", ""), stages)
            case _:
                pass
    if not stages:
        raise DockerfileUnreadable("there is no FROM")
    return Dockerfile(tuple(stages), tuple(sorted(images - {"scratch", ""})), syntax(text), tuple(remotes))


def syntax(text: str) -> str | None:
    """The frontend image that the file asks for, or None."""
    return next((value for _, key, value in _directives(text) if key == "syntax"), None)


def without_syntax(text: str) -> str:
    """The same file, in as many lines, without its `# syntax=` line: for an engine that cannot fetch a frontend image.

    An empty comment takes its place, behind the other directives, which would not count after a comment.
    """
    directives = _directives(text)
    chosen = [line for line, key, _ in directives if key == "syntax"]
    if not chosen:
        return text
    lines = text.split("\n")
    end = directives[-1][0] + 1
    kept = [line for number, line in enumerate(lines[:end]) if number not in chosen]
    return "\n".join(kept + ["#"] * len(chosen) + lines[end:])


def _directives(text: str) -> list[tuple[int, str, str]]:
    """(line from 0, key, value) of the parser directives."""
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n")):
        if number == 0 and line.startswith("#!"):
            continue
        match = DIRECTIVE.match(line.rstrip("\r"))
        if match is None:
            break
        found.append((number, match[1].lower(), match[2]))
    return found


def _commands(text: str) -> tuple[Command, ...]:
    if "\0" in text:
        raise DockerfileUnreadable("it holds a NUL character")
    module: Any = buildkit
    try:
        return cast("tuple[Command, ...]", module.parse_string(text))
    except module.GoParseError as error:
        raise DockerfileUnreadable(str(error)) from error


def _flags(flags: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, _, value in (flag.removeprefix("--").partition("=") for flag in flags)}


def _stage(command: Command, flags: dict[str, str], stages: list[Stage], arguments: dict[str, str]) -> Stage:
    words = command.value
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        raise DockerfileUnreadable(f"line {command.start_line}: FROM takes an image, and a name after AS")
    base = _expand(words[0], arguments)
    if not base:
        raise DockerfileUnreadable(f"line {command.start_line}: FROM has an argument without a value")
    place = _stage_named(base, stages)
    inherited = stages[place] if place is not None else None
    return Stage(
        base=base,
        base_stage=place,
        name=words[2] if len(words) == 3 else None,
        line=command.start_line,
        platform=_expand(flags["platform"], arguments) if "platform" in flags else None,
        workdir=inherited.workdir if inherited else None,
        user=inherited.user if inherited else None,
    )


def _stage_named(name: str, stages: list[Stage]) -> int | None:
    """Later stages hide earlier ones of the same name; case does not count."""
    matches = [place for place, stage in enumerate(stages) if stage.name and stage.name.lower() == name.lower()]
    return matches[-1] if matches else None


def _from(source: str, stages: list[Stage]) -> set[str]:
    """The image behind `--from`, unless it is a stage, by name or number."""
    if not source or _stage_named(source, stages) is not None or (source.isdigit() and int(source) < len(stages)):
        return set()
    return {source}


def _expand(text: str, arguments: dict[str, str]) -> str:
    """Fill in `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`. What is not known becomes empty, as in a build."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return match[0][1:]
        known = arguments.get(match[1] or match[4], "")
        if match[2] == "-":
            return known or _expand(match[3], arguments)
        if match[2] == "+":
            return _expand(match[3], arguments) if known else ""
        return known

    return EXPANSION.sub(value, text)
