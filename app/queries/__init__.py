"""Reading the views: typed rows, keyset pages, one SQL statement a file.

In comes a team with an id, a filter or a page token; out come frozen rows together with the position up to which they are
true, read in one snapshot. The tables of schema `views` are the contract with `projections`, which nobody here imports.

Every query is bound to a team: what belongs to another does not exist. Private text (names, labels, messages) is not in
the views; a caller who wants it says so, and it is read from the log by its event's position (texts.py), so that what was
erased there is gone everywhere.
"""
