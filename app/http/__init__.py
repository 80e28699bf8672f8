"""The door: requests in, answers and streams out.

`serve` runs it, `connection` bounds what one client may ask, wait and hold, `server` puts it together, `door` is the outermost
layer (request id, log line, counts), `access` lets in, `request` reads strictly, `problems` says no, `hub` and `sse` stream,
`downloads` hands out stored bytes, `routes/` is the map of the API. A handler parses, calls one command or query, and shapes
the answer; it decides nothing.
"""
