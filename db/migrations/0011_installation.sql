-- Which installation this database belongs to. Sandboxes and images are labelled with it, and the reaper lists by it: two
-- homes on one container engine may carry the same name (the setting `instance`), and must not remove each other's.
--
-- Not the incarnation (eventlog.log): what the processes before a restore left is still this installation's to remove. A
-- database that was copied, and shall run beside the first, is given an id of its own:
-- `update seatrial.installation set id = uuidv7()`.
create table seatrial.installation (
    only_one boolean primary key default true check (only_one),
    id       uuid not null default uuidv7()
);
insert into seatrial.installation default values;

grant select on seatrial.installation to seatrial_app;
