"""The pipe of a child's own output, on the event loop that the dispatcher runs on."""

import os
import threading

import uvloop

from workers.dispatcher.harness.conversation import piped

PIPES = 4_000
WRITTEN = b"what the child prints"


async def test_all_that_was_written_is_read_and_then_the_end() -> None:
    reading, writing = os.pipe()
    with piped(reading) as read:
        os.write(writing, WRITTEN)
        assert await read() == WRITTEN
        os.close(writing)
        assert await read() == b""


def test_a_pipe_is_closed_once_and_never_a_file_of_another_thread() -> None:
    broken: list[OSError] = []
    over = threading.Event()

    def open_and_close() -> None:
        try:
            while not over.is_set():
                mine = os.open("/dev/null", os.O_RDONLY)
                os.fstat(mine)
                os.close(mine)
        except OSError as error:
            broken.append(error)

    async def many() -> None:
        for _ in range(PIPES):
            reading, writing = os.pipe()
            with piped(reading) as read:
                os.write(writing, WRITTEN)
                os.close(writing)
                assert await read() == WRITTEN
                assert await read() == b""

    threads = [threading.Thread(target=open_and_close) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        uvloop.run(many())
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not broken
