-- How far views are.
-- $1 text[]: names of their checkpoints
-- Concurrency: a plain read. Whoever acts on it moves by compare-and-set.
select c.name, c.position, c.updated_at from eventlog.checkpoint as c where c.name = any ($1)
