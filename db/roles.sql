-- The roles of Seatrial, for a server where the migrating login may not create roles. Run once by an administrator:
--     psql -v login=seatrial -f db/roles.sql
-- Migration 0006 creates them itself where it may, and grants them their privileges.
create role seatrial_app nologin;
create role seatrial_projector nologin;
create role seatrial_eraser nologin;
grant seatrial_app, seatrial_projector, seatrial_eraser to :"login";
