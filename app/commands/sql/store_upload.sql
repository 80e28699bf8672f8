-- Note what an upload holds, once its object is there.
--   $1 text   upload id    $2 text  object key    $3 bytea  sha256    $4 bigint  size in bytes
-- Only an open upload: of two senders the object store let one win, and both note what that one sent.
update seatrial.upload
set object_key = $2, sha256 = $3, size_bytes = $4, state = 'stored'
where id = $1 and state = 'open'
