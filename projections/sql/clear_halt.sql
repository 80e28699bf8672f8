-- A view goes on.
-- $1 text[]: views
delete from views.halted where view = any ($1)
