-- The member list with this digest.
--   $1 bytea  digest
-- Rows are never changed.
select members from seatrial.roster where digest = $1
