"""Ports for servers that the tests start, each this process's alone until it ends."""

import socket

_HELD: list[socket.socket] = []


def held_port() -> int:
    """A port that nobody else gets, and that a server may still listen on.

    Linux gives a port that is bound to nobody who asks for any port; a second socket may bind it by number, where both
    have SO_REUSEADDR and the first does not listen.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    port: int = held.getsockname()[1]
    return port
