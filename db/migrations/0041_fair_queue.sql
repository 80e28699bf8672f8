-- The scheduler looks at each team's own head of the queue, so that a team at its limit holds up nobody else.
create index queued_of_team on scheduler.queued (team, priority desc, position);
drop index scheduler.queued_order;
