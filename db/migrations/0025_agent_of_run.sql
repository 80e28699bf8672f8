-- Which stored agent a run named. Null: it said its agent outright, as every run did before agents could be stored.
set local role seatrial_projector;
alter table views.run add column agent_id text collate "C";
create index on views.run (team, agent_id, position) where agent_id is not null;
reset role;
