-- All events of several streams of one team.
--   $1 text  team    $2 text[]  streams
-- A snapshot of each; who decides by it names the versions that it saw, or depends on nothing that can be taken back.
select e.stream, e.version, e.position, e.type, e.schema_version, e.data
from eventlog.event as e
where e.stream = any ($2::text[]) and e.team = $1
order by e.stream, e.version
