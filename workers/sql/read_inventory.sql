-- Where the package inventory of the image $1 (its digest) is stored, if it has the format $2.
select object_key from seatrial.sbom_cache where image_digest = $1 and format = $2
