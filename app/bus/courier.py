"""nats-py's client, and one more way to publish: headers that are known to be clean go out as they are.

nats-py's own `publish` strips, checks, translates and encodes every header by itself, which was a third of the relay's
time (tests/benchmarks/relaying.py). This builds the message in one go and checks the whole of it once. It leans on four
members that nats-py keeps for itself; tests/bus/test_courier.py holds what is expected of them.
"""

import re
from collections.abc import Mapping

import nats.errors
from nats.aio.client import Client

BLANK = re.compile(r"[ \t\r\n]")


class Courier(Client):
    async def post(self, subject: str, reply: str, headers: Mapping[str, str], message: bytes) -> None:
        """Publish `message` as `publish` does. Raises what `publish` raises, and BadHeaderError for a line break in a header."""
        if not subject or BLANK.search(subject):
            raise nats.errors.BadSubjectError
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        size = len(message)
        if size > self._max_payload:
            raise nats.errors.MaxPayloadError
        if not self.is_connected and size + self._pending_data_size > self._max_pending_size:
            raise nats.errors.OutboundBufferLimitError
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        block = f"NATS/1.0\r\n{''.join(lines)}\r\n"
        if block.count("\n") != len(lines) + 2 or block.count("\r") != len(lines) + 2:
            raise nats.errors.BadHeaderError(block)
        head = block.encode()
        start = f"HPUB {subject} {reply} {len(head)} {len(head) + size}\r\n".encode()
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += size
        await self._send_command(b"".join((start, head, message, b"\r\n")))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()
