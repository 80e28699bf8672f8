-- The id of the installation that this database belongs to.
select id from seatrial.installation
