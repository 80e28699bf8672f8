-- The run of a team with a number, with its score.
-- $1 text: team
-- $2 bigint: number
select r.*, row_to_json(s) as score
from views.run as r
left join views.score as s on s.id = r.id
where r.team = $1 and r.number = $2
