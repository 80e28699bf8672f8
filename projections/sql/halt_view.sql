-- Say that a view stays before an event that it cannot fold.
-- $1 text: view
-- $2 bigint, $3 text, $4 text: position, stream and type of the event
-- $5 text: error code
-- Concurrency: one row a view; the latest word counts.
insert into views.halted (view, position, stream, type, error_code)
values ($1, $2, $3, $4, $5)
on conflict (view) do update
set position = excluded.position, stream = excluded.stream, type = excluded.type, error_code = excluded.error_code,
    halted_at = case when halted.position = excluded.position then halted.halted_at else excluded.halted_at end
