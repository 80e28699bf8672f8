-- Erase the private part of one event. Null: there is none (any more).
-- $1 bigint: position
-- $2 text: reason, a code
-- Concurrency: the row's lock; the second of two callers finds nothing left to erase.
select eventlog.erase($1, $2)
