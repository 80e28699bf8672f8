-- Wait until nobody else counts slots or admits; held to the end of the transaction.
select from scheduler.lock for update
