-- The frozen member list whose digest is $1 (sha256:<hex>).
select members from seatrial.roster where digest = $1
