-- The events of the streams $1 as an archive keeps them, in commit order: everything that their hashes cover, and no
-- private text. $2: for each stream, the last version that counts.
select e.position, e.stream, e.version, e.event_id, e.type, e.schema_version, e.team, e.recorded_at, e.data, e.meta,
       e.private_hash, e.hash
from unnest($1::text[], $2::integer[]) as s (id, version)
join eventlog.event as e on e.stream = s.id and e.version <= s.version
order by e.position
