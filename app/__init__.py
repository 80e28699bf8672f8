"""Seatrial, room by room, in the order a run walks them.

    http/        0 and 7  the door in and out: routes, access, problems, server-sent events
    commands/    3        a request -> load, decide, append
    domain/      1        what can happen: events, one module per aggregate, failures. Pure
    eventlog/    2        what did happen: append, read, tail, chain, checkpoints
    bus/         4        telling the others: relay, feed, work, logs
    queries/     6        reading the views
    objects/              the object store port: local files, S3
    evidence/             manifest, provenance, SBOM, the archive
    archives/ images/     hostile-input readers; image references and what is inside an image
    vault/ access/        secrets and their redaction; who may do what
    local/                one machine: embedded Postgres and NATS, the container engine, `up`
    cli/ admin/           a thin HTTP client; operator commands on the log itself

`projections` (5, views) and `workers` (effects) are packages beside this one: they import `app`, never the reverse.
They meet in data: tables, subjects, object keys.
"""
