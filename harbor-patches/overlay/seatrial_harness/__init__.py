"""Seatrial's side of the harness: what runs in Harbor's environment beside Harbor.

`forkserver` imports Harbor once and forks; `child` runs one trial; `environment` and `verifier` are the classes that
Harbor uses by import path; `channel` is the child's connection to its worker. Nothing here knows events, leases or scores.
"""
