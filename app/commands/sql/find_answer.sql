-- The answer to an idempotent request, if it was carried out.
--   $1 text  team    $2 text  idempotency key
-- A snapshot: an equal request under way is not seen here; the log refuses the loser with the winner's answer.
select request_hash, answer, position
from eventlog.idempotency
where team = $1 and key = $2
