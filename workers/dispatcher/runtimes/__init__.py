"""Where a trial's sandbox runs. `port.py` is the seam, with engines behind it. `choose.py` opens the one that the setting
`runtime` names in the entry-point group `seatrial.runtimes` (name -> `async open_runtime(settings) -> Runtime`).

A runtime knows sandboxes, images and limits. It knows neither trials nor the harness nor the event log.
"""
