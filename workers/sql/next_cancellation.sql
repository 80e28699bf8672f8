-- One cancelled run whose open trials were not all told, and those trials. Not locked: telling twice changes nothing.
select r.id, r.team,
       coalesce((select array_agg(t.id) from foreman.trial as t where t.run_id = r.id and t.outcome is null), '{}') as open
from foreman.run as r
where r.cancelling and not r.cancel_told and not r.ended
order by r.id limit 1
