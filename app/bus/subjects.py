"""The one place that builds subjects.

    seatrial.events.<team>.<category>.<id>.<type>     every event; a type has two tokens (trial.scored)
    seatrial.logs.<team>.<kind>.<id>                  log chunks of an execution or a revision
    seatrial.cancel.<work id>                         a nudge: look at your cancel flag now

A name is one token: whatever NATS gives a meaning is percent-encoded, and an empty name is written `-`.
"""

import functools
from urllib.parse import quote, unquote

EVENTS = "seatrial.events.>"
LOGS = "seatrial.logs.>"
CANCELS = "seatrial.cancel.*"
NONE = "-"


def event(team: str, category: str, stream: str, type_name: str) -> str:
    """The subject of an event. A stream named `<category>/<rest>` is known by its rest."""
    identifier = stream.removeprefix(f"{category}/")
    return f"seatrial.events.{token(team)}.{token(category)}.{token(identifier)}.{type_name}"


def events_of_type(type_name: str) -> str:
    """A filter: this type in every team and stream."""
    return f"seatrial.events.*.*.*.{type_name}"


def logs(team: str, kind: str, owner: str) -> str:
    return f"seatrial.logs.{token(team)}.{token(kind)}.{token(owner)}"


def cancel(work_id: str) -> str:
    return f"seatrial.cancel.{token(work_id)}"


def cancelled_work(subject: str) -> str:
    """The work id of a subject made by `cancel`."""
    return unquote(subject.rsplit(".", 1)[-1])


def stream_token(subject: str) -> str:
    """The id in the subject of an event (without its category)."""
    return unquote(subject.split(".", 5)[4])


@functools.lru_cache(maxsize=4096)
def token(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E") or NONE
