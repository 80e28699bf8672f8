"""What the processes say to their operator: lines on standard error, for people or as JSON, with no secret in them.

Every module logs through `structlog.get_logger()`: an event in a few constant words, and ids as fields. Ids of the work at hand
are bound once (`bound(trial=…)`) and stand on every line from within. What other libraries log comes through here from
warnings on; at debug level theirs would show headers and keys. Bodies, headers and environments are never logged.
"""

import contextlib
import json
import logging
import sys
import threading
import types
import urllib.parse
from collections.abc import Iterable, MutableMapping
from typing import Any, TextIO

import msgspec
import structlog

from app.settings import Settings, SettingsInvalid
from app.vault import Secrets

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LONGEST_VALUE = 2_000
"""Characters of one field. Whatever is longer is no id, number or message."""
LONGEST_LINE = 64 * 1024
"""Characters in all, traceback and everything."""
WITHHELD = frozenset(
    {
        *("body", "content", "data", "headers", "environment", "environ", "env"),
        *("authorization", "cookie", "token", "secret", "password", "api_key", "credential", "credentials"),
    }
)
"""Fields whose values are not for logs, whoever logs them."""

bound = structlog.contextvars.bound_contextvars
"""`with bound(trial=…):` puts the fields on every line from within, also in tasks that are started there."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Text from elsewhere must not steer the operator's terminal."""

type _Event = MutableMapping[str, Any]
log = structlog.get_logger()


def configure(settings: Settings, secrets: Iterable[str] = (), *, stream: TextIO | None = None) -> None:
    """Once a process, before anything is logged. Raises SettingsInvalid for an unknown level.

    Masked are `secrets`, the passwords in the settings' URLs, and whatever has the shape of a key.
    """
    level = LEVELS.get(settings.log_level.lower())
    if level is None:
        raise SettingsInvalid(f"SEATRIAL_LOG_LEVEL: one of {', '.join(LEVELS)}")
    known = Secrets([*secrets, *passwords(settings)])
    target = _Output(stream or sys.stderr, known)
    before: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _withhold(known),
    ]
    after = _renderers(settings.log_json, target.isatty())
    structlog.configure(
        processors=[*before, *after],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: target,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*before, _name_of_library],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *after],
        )
    )
    _take_over(handler)


def passwords(settings: Settings) -> list[str]:
    """Those that stand in the settings' URLs, quoted and as they are; NATS takes a token in the place of a name."""
    found: list[str] = []
    for url in (
        settings.database_url,
        settings.nats_url,
        settings.nats_relay_url,
        settings.objects_url,
        settings.docker_host,
    ):
        with contextlib.suppress(ValueError):
            parts = urllib.parse.urlsplit(url)
            token = parts.username if parts.password is None and parts.scheme in ("nats", "tls") else None
            found += [secret for secret in (parts.password, token) if secret]
    return [*found, *(urllib.parse.unquote(secret) for secret in found)]


def _renderers(as_json: bool, colors: bool) -> list[structlog.typing.Processor]:
    """Tracebacks are plain: the fancy ones print local variables."""
    if as_json:
        return [structlog.processors.format_exc_info, _json]
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]


def _json(_: Any, __: str, event: _Event) -> str:
    first = {"time": event.pop("timestamp", None), "level": event.pop("level", None), "event": event.pop("event", None)}
    fields = first | dict(event)
    try:
        return msgspec.json.encode(fields, enc_hook=repr).decode()
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):  # half a character, a number beyond 64 bits
        return json.dumps(fields, default=repr, skipkeys=True)


def _withhold(known: Secrets) -> structlog.typing.Processor:
    """Leave out what is not for logs, and cut what is long: after masking, or half a secret would pass."""

    def withhold(_: Any, __: str, event: _Event) -> _Event:
        for name, value in event.items():
            if name in WITHHELD and value is not None:
                event[name] = "[withheld]"
            elif isinstance(value, bytes):
                event[name] = f"[{len(value)} bytes]"
            elif isinstance(value, str):
                if len(value) > LONGEST_VALUE:
                    value = f"{known.mask_text(value)[:LONGEST_VALUE]}… ({len(value)} characters)"
                event[name] = value.translate(_CONTROLS)
        return event

    return withhold


def _name_of_library(_: Any, __: str, event: _Event) -> _Event:
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["library"] = record.name
    return event


def _take_over(handler: logging.Handler) -> None:
    """Everything that others log or let fall: one handler, at the root; errors that nobody caught."""
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "nats", "asyncpg", "aiobotocore", "botocore"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    logging.getLogger(
        "uvicorn.access"
    ).disabled = True  # app/http has its own, which knows routes and leaves out queries
    logging.captureWarnings(True)
    logging.raiseExceptions = False
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    log.critical("uncaught error", exc_info=(kind, error, trace))


def _uncaught_in_thread(happened: threading.ExceptHookArgs) -> None:
    if happened.exc_value is not None and happened.thread is not None:
        trace = (happened.exc_type, happened.exc_value, happened.exc_traceback)
        log.critical("uncaught error", thread=happened.thread.name, exc_info=trace)


class _Output:
    """Where every line ends up, of structlog and of the standard library: masked, so that no way leads past.

    A stream that fails costs log lines and nothing else: a full disk or a closed pipe must not end a trial.
    """

    def __init__(self, stream: TextIO, secrets: Secrets) -> None:
        self._stream = stream
        self._secrets = secrets

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            masked = self._secrets.mask_text(text)
            if len(masked) > LONGEST_LINE:
                masked = f"{masked[:LONGEST_LINE]}… ({len(masked)} characters)\n"
            self._stream.write(masked)
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Done with each line."""

    def isatty(self) -> bool:
        return self._stream.isatty()

    def msg(self, line: str) -> None:
        self.write(line + "\n")

    debug = info = warning = error = critical = exception = msg
