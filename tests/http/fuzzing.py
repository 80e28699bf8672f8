"""Hooks of schemathesis, which loads this file (SCHEMATHESIS_HOOKS): what the document cannot say of a right request.

Half of the requests ask for things that there are. Opaque texts (cursors, page tokens) that a right request has are such as
the API gave out; those of wrong requests stay as they were drawn. Nobody waits. Which things there are stands in
SEATRIAL_FUZZ, as JSON.
"""

import itertools
import os
from typing import Any

import msgspec
import schemathesis

THERE: dict[str, str] = msgspec.json.decode(os.environ["SEATRIAL_FUZZ"], type=dict[str, str])
"""Values of path parameters by their names; `position` is a cursor."""
OPAQUE = ("page_token", "after")
_keys = itertools.count()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    positive = case.meta is None or case.meta.generation.mode.is_positive
    parameters, query, headers = case.path_parameters or {}, case.query or {}, case.headers or {}
    if positive:
        if sum(map(ord, case.path + repr(sorted(query)))) % 2 == 0 or case.method == "DELETE":
            for name in parameters:
                parameters[name] = THERE.get(name, parameters[name])
        for name in OPAQUE:
            query.pop(name, None)
        if "Seatrial-After" in headers:
            headers["Seatrial-After"] = THERE["position"]
        if "Idempotency-Key" in headers:
            headers["Idempotency-Key"] = f"fuzz-{next(_keys)}"
    if "Prefer" in headers:
        headers["Prefer"] = "wait=0"
