-- Begin to keep account of a run: $1 id, $2 team, $3 evaluations, $4 trials an evaluation.
insert into foreman.run (id, team, evaluations, trials) values ($1, $2, $3, $4) on conflict (id) do nothing
