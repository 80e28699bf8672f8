"""Why an archive is not taken, and the limits that say when."""

import enum

import msgspec


class Code(enum.StrEnum):
    """The value is stable and shown to users; the docstring of each is the sentence that they read."""

    UNKNOWN_FORMAT = "unknown_format"
    DAMAGED = "damaged"
    TRUNCATED = "truncated"
    TRAILING_DATA = "trailing_data"
    LINK = "link"
    SPECIAL_FILE = "special_file"
    SPARSE = "sparse"
    ENCRYPTED = "encrypted"
    UNSUPPORTED_COMPRESSION = "unsupported_compression"
    ABSOLUTE_PATH = "absolute_path"
    PARENT_PATH = "parent_path"
    BAD_NAME = "bad_name"
    NAME_COLLISION = "name_collision"
    TOO_DEEP = "too_deep"
    PATH_TOO_LONG = "path_too_long"
    TOO_MANY_MEMBERS = "too_many_members"
    TOO_LARGE = "too_large"
    FILE_TOO_LARGE = "file_too_large"
    RATIO = "ratio"
    INCONSISTENT = "inconsistent"
    NO_TASK = "no_task"


SENTENCES: dict[Code, str] = {
    Code.UNKNOWN_FORMAT: "is not a tar (plain, gzip or zstd) or zip archive",
    Code.DAMAGED: "is damaged",
    Code.TRUNCATED: "ends too early",
    Code.TRAILING_DATA: "has data after its end",
    Code.LINK: "is a link; replace it by the file that it points to",
    Code.SPECIAL_FILE: "is not a regular file or a folder",
    Code.SPARSE: "is stored as a sparse file; pack it without --sparse",
    Code.ENCRYPTED: "is encrypted",
    Code.UNSUPPORTED_COMPRESSION: "is compressed by a method other than deflate",
    Code.ABSOLUTE_PATH: "has an absolute path",
    Code.PARENT_PATH: "has a path with `.` or `..` in it",
    Code.BAD_NAME: "has a name that cannot be used",
    Code.NAME_COLLISION: "has the same name as another member on some file systems",
    Code.TOO_DEEP: "lies too many folders deep",
    Code.PATH_TOO_LONG: "has too long a path",
    Code.TOO_MANY_MEMBERS: "has too many members",
    Code.TOO_LARGE: "is too large when unpacked",
    Code.FILE_TOO_LARGE: "is too large",
    Code.RATIO: "unpacks to too many times its size",
    Code.INCONSISTENT: "is described in two different ways by the archive",
    Code.NO_TASK: "has no task.toml, neither at its root nor in its one top folder",
}


class ArchiveRefused(ValueError):
    """The archive breaks a rule: `code` says which, `member` where (None: the archive as a whole)."""

    def __init__(self, code: Code, member: str | None = None, detail: str = "") -> None:
        self.code = code
        self.member = None if member is None else printable(member)
        self.detail = detail
        subject = "the archive" if self.member is None else f"`{self.member}`"
        super().__init__(f"{subject} {SENTENCES[code]}" + (f" ({detail})" if detail else ""))


class Limits(msgspec.Struct, frozen=True):
    """What an archive may be. Counted from the stream itself, never from what its headers claim."""

    members: int = 50_000
    """Files and folders."""
    total_bytes: int = 8 * 1024**3
    file_bytes: int = 4 * 1024**3
    ratio: int = 250
    """Unpacked to packed; judged only after `ratio_free_bytes`, since small text compresses without limit."""
    ratio_free_bytes: int = 64 * 1024**2
    depth: int = 32
    path_bytes: int = 1024

    @property
    def stream_bytes(self) -> int:
        """The longest tar stream that can hold content within the limits: headers and padding included."""
        return self.total_bytes + 4096 * self.members + 1024**2


DEFAULT = Limits()


def printable(name: str) -> str:
    """A member's name, fit for a log line: at most 200 characters, none that a terminal would act on."""
    return "".join(character if character.isprintable() else "�" for character in name[:200])
