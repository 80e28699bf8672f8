"""Reading TOML tables without trust: every wrong value becomes a `PackError` that names its field, and reading goes on.

So an author learns everything that is wrong at once, and a key that nobody asked for is reported instead of dropped.
"""

import math
from collections.abc import Callable, Mapping

from app.domain.pack import ErrorCode, Finding, PackError


class Problems:
    """What was found on the way, in the order in which it was read."""

    def __init__(self) -> None:
        self.errors: list[PackError] = []
        self.warnings: list[Finding] = []

    def add(self, field: str, code: ErrorCode, message: str) -> None:
        self.errors.append(PackError(field, code, message))

    def warn(self, field: str, code: str, message: str) -> None:
        self.warnings.append(Finding(field, code, message))


class Table:
    """One table. A method for each kind of value; each gives the default when the key is absent or its value is wrong."""

    def __init__(self, values: Mapping[str, object], path: str, problems: Problems) -> None:
        self._values, self._path, self.problems = values, path, problems
        self._read: set[str] = set()

    def field(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def wrong(self, key: str, code: ErrorCode, message: str) -> None:
        self.problems.add(self.field(key) if key else self._path, code, message)

    def raw(self, key: str) -> object:
        self._read.add(key)
        return self._values.get(key)

    def text(self, key: str, *, empty: bool = True) -> str | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self._type(key, "a string", value)
            return None
        if not empty and not value.strip():
            self.wrong(key, ErrorCode.VALUE, "must not be empty")
            return None
        if "\0" in value:
            self.wrong(key, ErrorCode.VALUE, "must not hold a NUL character")
            return None
        return value

    def required_text(self, key: str) -> str:
        """An absent one is an error; the empty string stands in for it."""
        if key not in self._values:
            self._read.add(key)
            self.wrong(key, ErrorCode.REQUIRED, "is required")
            return ""
        return self.text(key, empty=False) or ""

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self.text(key)
        if value is not None and value not in choices:
            self.wrong(key, ErrorCode.VALUE, f"must be one of {', '.join(choices)}")
            return None
        return value

    def number(self, key: str, *, least: float = 0.0, above: bool = True) -> float | None:
        """A finite number above `least`, or from `least` on."""
        value = self.raw(key)
        if value is None:
            return None
        # bool is an int to Python, not to TOML.
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._type(key, "a number", value)
            return None
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or number < least or (above and number == least):
            self.wrong(key, ErrorCode.VALUE, f"must be a finite number {'above' if above else 'of at least'} {least:g}")
            return None
        return number

    def integer(self, key: str, *, least: int, most: int = 2**53) -> int | None:
        """A whole number, also one that is written as `2.0`."""
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self._type(key, "a whole number", value)
            return None
        if not least <= value <= most:
            self.wrong(key, ErrorCode.VALUE, f"must be from {least} to {most}")
            return None
        return value

    def boolean(self, key: str) -> bool | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, bool):
            self._type(key, "true or false", value)
            return None
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        items: list[str] = []
        for place, item in enumerate(self.items(key)):
            if isinstance(item, str):
                items.append(item)
            else:
                self._type(f"{key}[{place}]", "a string", item)
        return tuple(items)

    def items(self, key: str) -> tuple[object, ...]:
        value = self.raw(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self._type(key, "a list", value)
            return ()
        return tuple(value)  # pyright: ignore[reportUnknownArgumentType]

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """A table of strings, in the order of the file."""
        value = self.raw(key)
        if value is None:
            return ()
        if not isinstance(value, dict):
            self._type(key, "a table", value)
            return ()
        pairs: list[tuple[str, str]] = []
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            if isinstance(item, str):
                pairs.append((str(name), item))  # pyright: ignore[reportUnknownArgumentType]
            else:
                self._type(f"{key}.{name}", "a string", item)
        return tuple(pairs)

    def table(self, key: str) -> "Table | None":
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._type(key, "a table", value)
            return None
        return Table(value, self.field(key), self.problems)  # pyright: ignore[reportUnknownArgumentType]

    def tables(self, key: str) -> tuple["Table", ...]:
        """A list of tables."""
        found: list[Table] = []
        for place, item in enumerate(self.items(key)):
            if isinstance(item, dict):
                found.append(Table(item, f"{self.field(key)}[{place}]", self.problems))  # pyright: ignore[reportUnknownArgumentType]
            else:
                self._type(f"{key}[{place}]", "a table", item)
        return tuple(found)

    def each[T](self, key: str, read: "Callable[[Table], T]") -> tuple[T, ...]:
        return tuple(read(table) for table in self.tables(key))

    def close(self) -> None:
        """Report the keys that nobody read."""
        for key in self._values:
            if key not in self._read:
                self.problems.warn(
                    self.field(key), "unknown_key", "is not a key that Harbor or Seatrial reads; it has no effect"
                )

    def _type(self, key: str, expected: str, value: object) -> None:
        self.wrong(key, ErrorCode.TYPE, f"must be {expected}, not {_kind(value)}")


KINDS: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a string"),
    (list, "a list"),
    (dict, "a table"),
)


def _kind(value: object) -> str:
    return next((name for kind, name in KINDS if isinstance(value, kind)), "a date or time")
