-- Remember the inventory $3 (an object's key) of the image $1 in the format $2. Two that read the same image at once write
-- the same.
insert into seatrial.sbom_cache (image_digest, format, object_key) values ($1, $2, $3)
on conflict (image_digest) do update set format = excluded.format, object_key = excluded.object_key
