"""A downstream consumer of Seatrial's events: follows them over any interruption, and misses none.

    SEATRIAL_API_KEY=… python examples/follow_events.py http://127.0.0.1:7070 cursor.txt

The cursor of the last event is kept in a file, after the event was handled: killed in between, it handles that event again
(at least once); whoever needs exactly once keeps the cursor in the same transaction as the effect. When the server's
database was restored from a backup, cursors of before mean nothing (`resync`): it begins again with the oldest event.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit


def events(url: str, key: str, cursor: str | None) -> Iterator[tuple[str, dict[str, object]]]:
    """(cursor, CloudEvent) of each event after `cursor`, over all reconnects."""
    address = urlsplit(url)
    while True:
        headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
        if cursor:
            headers["Last-Event-ID"] = cursor
        connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=60)
        try:
            connection.request("GET", "/v1/events", headers=headers)
            answer = connection.getresponse()
            if answer.status >= 500:  # the server, or its database, is away: it comes back
                raise ConnectionError(f"{answer.status} {answer.reason}")
            if answer.status != 200:
                sys.exit(f"{answer.status} {answer.reason}: {answer.read(2000).decode()}")
            for kind, identifier, data in _messages(answer):
                if kind == "resync":
                    print("the server begins again; so do we", file=sys.stderr)
                    cursor = None
                elif identifier:
                    cursor = identifier
                    yield identifier, json.loads(data)
        except (OSError, http.client.HTTPException) as error:
            print(f"reconnecting: {error}", file=sys.stderr)
        finally:
            connection.close()
        time.sleep(1)


def _messages(stream: http.client.HTTPResponse) -> Iterator[tuple[str, str, str]]:
    """(kind, id, data) of each message. Those of the stream itself (`reconnect`, `resync`) have no id."""
    kind, identifier, data = "", "", ""
    for raw in stream:
        field, _, value = raw.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "id":
            identifier = value
        elif field == "data":
            data = value
        elif not field and not value:
            if data:
                yield kind, identifier, data
            kind, identifier, data = "", "", ""


def main() -> None:
    url, file = sys.argv[1], Path(sys.argv[2])
    cursor = file.read_text().strip() if file.exists() else None
    for identifier, event in events(url, os.environ["SEATRIAL_API_KEY"], cursor):
        print(event["time"], event["type"], event["subject"], flush=True)
        aside = file.with_suffix(".new")
        aside.write_text(identifier)
        aside.replace(file)


if __name__ == "__main__":
    main()
