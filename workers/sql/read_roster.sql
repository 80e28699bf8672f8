-- The frozen member list whose SHA-256 is $1 (32 bytes).
select members from seatrial.roster where digest = $1
