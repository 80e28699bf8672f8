-- An upload has become a revision (or was found to be one).
--   $1 text  upload id    $2 text  revision id
-- The row lock lasts to the end of the transaction that writes the revision. A second finalize finds the state and
-- changes nothing; the log then refuses its reservation and names the winner.
update seatrial.upload
set state = 'finalized', revision = $2
where id = $1 and state = 'stored'
