"""One trial: a forked child of the harness (Harbor, in its own environment) that drives a sandbox which this worker owns.

`server.py` holds the fork server, `trial.py` runs one trial and says what happened, `wire.py` is what both sides speak.
Harbor itself is never imported here: it is reached over a socket. Nothing here knows leases, events or scores.
"""
