-- Take the trials $1 out of the queue.
delete from scheduler.queued where trial_id = any ($1::text[])
