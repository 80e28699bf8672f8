"""What can happen. Pure: standard library and msgspec, no I/O, no clock, no randomness.

`events` is the catalogue, `registry` turns events into bytes and back. One module an aggregate (revision, run, evaluation,
trial, evidence), each with the same parts in the same order: State, evolve, the commands, decide.
"""
