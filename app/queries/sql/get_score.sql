-- The score of an evaluation or a run.
-- $1 text: team
-- $2 text: id of the evaluation or the run
select s.* from views.score as s where s.id = $2 and s.team = $1
