-- Remember the inventory $3 (an object's key) of the image $1 in the format $2, if the row still is as it was read: absent, of
-- another format, or $4. Returns nothing when another process was faster; its inventory then counts.
insert into seatrial.sbom_cache as c (image_digest, format, object_key) values ($1, $2, $3)
on conflict (image_digest) do update set format = excluded.format, object_key = excluded.object_key
where c.format <> excluded.format or c.object_key = $4
returning c.object_key
