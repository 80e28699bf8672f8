"""The relay's peer: messages of the relay's size and headers into EVENTS, a thousand under way, and nothing else.

`PEER_NATS_URL=… python -m tests.benchmarks.publish_loop COUNT`
"""

import asyncio
import os
import sys

import nats
import uvloop
from nats.aio.msg import Msg

WINDOW = 1000
"""As the relay's."""
BODY = b'{"specversion":"1.0","data":"' + b"x" * 700 + b'"}'
SUBJECT = "seatrial.events.tem_06fbnfkd1dwk7a9q2q5xhbgz9w.trial.trl_06fbnfkd1dwk7a9q2q5xhbgz9w.noted"
HEADERS = {"Category": "trial", "Hash": "0" * 64, "Meta": "m" * 150, "Incarnation": "i" * 36, "Version": "1"}


async def publish(url: str, count: int) -> None:
    client = await nats.connect(url)
    inbox = client.new_inbox()
    room = asyncio.Semaphore(WINDOW)

    async def stored(answer: Msg) -> None:
        assert b'"seq"' in answer.data, answer.data
        room.release()

    await client.subscribe(inbox, cb=stored)
    for number in range(1, count + 1):
        await room.acquire()
        await client.publish(SUBJECT, BODY, reply=inbox, headers={**HEADERS, "Nats-Msg-Id": str(number)})
    for _ in range(WINDOW):
        await room.acquire()
    await client.close()


if __name__ == "__main__":
    uvloop.run(publish(os.environ["PEER_NATS_URL"], int(sys.argv[1])))
