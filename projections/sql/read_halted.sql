-- The views that are halted, and before what.
select view, position, stream, type, error_code, halted_at from views.halted order by view
