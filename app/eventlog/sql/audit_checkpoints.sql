-- Every signed checkpoint, oldest first. Read through a cursor.
select number, position, envelope, leaves from eventlog.merkle_checkpoint order by number
