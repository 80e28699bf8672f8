"""Effects: each worker reads events, acts on the world, and answers with an event.

    foreman     run.requested -> evaluations and trials; the last end of a trial -> evaluation.completed -> run.completed
    scheduler   trial.queued -> trial.admitted, while slots are free
    builder     revision.uploaded -> an image -> revision.ready | revision.rejected
    dispatcher  trial.admitted -> sandbox and harness -> trial.scored | errored | cancelled
    attester    evaluation.completed -> the archive -> evidence.sealed
    clock       ends the leases of the dead, fires timers, signs checkpoints
    reaper      removes sandboxes that no lease owns

`looper` is what they have in common as processes, `lease` as owners of work.
"""
