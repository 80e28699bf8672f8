-- The evidence of an evaluation.
-- $1 text: team
-- $2 text: evaluation
select p.* from views.provenance as p where p.evaluation_id = $2 and p.team = $1
