-- Every event with the row of its stream, stream by stream, oldest first. Read through a cursor.
-- Concurrency: in one REPEATABLE READ transaction, so that what is appended meanwhile is not half seen.
select e.position, e.stream, e.version, e.event_id, e.type, e.schema_version, e.team,
       timestamptz_send(e.recorded_at) as recorded_at_bytes, e.data, e.meta,
       e.private, e.salt, e.private_hash, e.hash,
       s.version as stream_version, s.head_hash as stream_hash, s.team as stream_team
from eventlog.event as e
left join eventlog.stream as s on s.id = e.stream
order by e.stream, e.version
