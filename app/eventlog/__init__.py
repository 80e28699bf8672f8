"""What did happen: the append-only log in Postgres, the source of truth.

In come units (model.Unit); out come recorded events in commit order (tail) or by stream (read). Nobody else writes to
the tables of schema `eventlog`, and nothing in here knows what an event means.

    model        what goes in, what comes back, what is read
    deciding drafts
                 load, decide, append; from decided drafts to a unit
    units append group commit: one call, one transaction, one outcome a unit
    read tail    by stream and position; in commit order, without loss
    chain checkpoints findings audit erase
                 hashes, signed checkpoints, what was tampered with, what was erased
    connect incarnation migrate statements
                 how one connects, which life of the log this is, the schema, the SQL
"""
