-- A process says that it works.
-- $1 text: its id, new for every start of a process
-- $2 text: the kind of work
-- $3 integer: how many at a time
-- Concurrency: one row a process, written by that process alone. A row that was taken away meanwhile is made again.
insert into eventlog.worker as w (id, kind, slots) values ($1, $2, $3)
on conflict (id) do update set kind = excluded.kind, slots = excluded.slots, beat = w.beat + 1, beat_at = now()
