"""What did happen: the append-only log in Postgres, the source of truth.

In come units (model.Unit); out come recorded events in commit order (tail) or by stream (read). Nobody else writes to
the tables of schema `eventlog`, and nothing in here knows what an event means.
"""
