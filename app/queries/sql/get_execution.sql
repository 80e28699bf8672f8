-- One execution.
-- $1 text: team
-- $2 text: its id
select x.* from views.execution as x where x.id = $2 and x.team = $1
