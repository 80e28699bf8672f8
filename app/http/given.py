"""How a handler asks for what the application provides (`house`, `caller`, `hub`, …): by name, as it is."""

from typing import Annotated, TypeVar

from litestar.di import Dependency
from litestar.params import SkipValidationMarker

T = TypeVar("T")

Given = Annotated[T, Dependency(kind="named"), SkipValidationMarker()]
"""Not validated: it is ours, and msgspec cannot look into a connection pool."""
