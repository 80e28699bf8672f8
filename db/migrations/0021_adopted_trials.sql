-- A retry adopts the scored trials of the run that it repeats: they are counted among the scored ones and, in `adopted`,
-- apart; each names the trial that ran. What was called adopted before (a result that a lost worker had completed) is
-- recovered.
set local role seatrial_projector;
alter table views.run add column adopted bigint not null default 0;
alter table views.evaluation add column adopted bigint not null default 0;
alter table views.trial rename column adopted to recovered;
alter table views.trial add column adopted_from text collate "C";
reset role;
