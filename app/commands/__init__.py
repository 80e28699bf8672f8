"""Changing things: one function a command, which loads what it needs, decides by the domain, and appends.

In come a caller, who has been authenticated, and typed arguments; out comes a Done (result and log position), or a
CommandRefused with a stable code. A command that writes rows writes them in the transaction of their event. Every command
names its permission (`needs`). Nothing here knows HTTP.
"""
