-- The evidence of the completed evaluations of a run (at most 10,000), in the order in which they completed.
-- $1 text: team
-- $2 text: run
select p.* from views.provenance as p where p.run_id = $2 and p.team = $1 order by p.position
