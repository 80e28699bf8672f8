-- Up to where every position is decided: its event is visible, or will never be.
select position from eventlog.high_water
