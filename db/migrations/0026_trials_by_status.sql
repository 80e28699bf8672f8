-- Lists of trials by status or failure, whatever the number of those that ended before (tests/benchmarks/growth.py).
--
-- Two indexes divided by the end of a trial, and not one with the status of all: a trial changes its status five times, and
-- an index that holds it would take part in each of these updates, where now only the last one needs it.
set local role seatrial_projector;
create index on views.trial (team, position) where ended_at is null;
create index on views.trial (team, status, position) where ended_at is not null;
create index on views.trial (team, failure_code, position) where failure_code is not null;
reset role;
