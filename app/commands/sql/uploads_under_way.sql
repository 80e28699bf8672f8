-- Which of these uploads still need their object.
--   $1 text[]  upload ids
-- A snapshot taken after the objects were listed: the row of an upload is there before its object, and never comes back
-- from finalized or gone.
select id from seatrial.upload where id = any ($1::text[]) and state <> 'finalized'
