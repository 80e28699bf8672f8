"""Read models: every view folds the log into tables of schema `views`, and can be made again from nothing.

One file a view: which events, which tables, one `apply`. A view reads its own tables and nothing else, so that it can
halt, or be rebuilt, alone. The tables (db/migrations/0020) are the contract with `app/queries`, which reads them; nobody
imports anything from here.

    table      a table as its row Struct; the statements that load and store rows of it
    view       what a view is; folding a batch of events in memory
    task revision run evaluation trial execution score provenance timeline      the views
    catalogue  all of them
    ledger     how far each view is, and which are halted
    batch      one batch: rows and checkpoints of all views in one transaction
    projector  the loop; main starts it
    aside      views built beside the served ones from one reading of the log; shelf keeps their rows in memory meanwhile
    rebuild    swaps them in, in one transaction; verify compares row by row
    admin      `seatrial admin projections`
"""
