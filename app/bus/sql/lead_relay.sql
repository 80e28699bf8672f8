-- Become the one relay; false: another one is.
-- Concurrency: the lock belongs to the session and goes with it. Two relays that both believe (a session that died without
-- the client noticing) publish the same events, and the expected sequence lets one of them through.
select pg_try_advisory_lock(hashtextextended('seatrial.relay', 0))
