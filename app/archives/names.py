"""Which member names are taken. Pure.

A name is taken only if it means the same file on every system that a pack may meet (Linux, macOS, Windows): the rules are
those of POSIX paths, narrowed by Unicode normal form (UAX 15), case folding and Windows' separators.
"""

import re
import unicodedata

from app.archives.refusal import ArchiveRefused, Code, Limits

COMPONENT_BYTES = 255
"""NAME_MAX of Linux."""

LEFT_OUT = frozenset({".git", "__pycache__", "__MACOSX", ".DS_Store"})
"""Never part of a pack, in a folder as in an archive: made by tools, different on each machine. Nothing else is left out,
and no ignore file is read."""

DRIVE = re.compile(r"^[A-Za-z]:")
BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Turn the reading order of a name around, so that it looks like another one (Unicode TR 36)."""


def clean(name: str, limits: Limits) -> str:
    """The path that a member's name stands for: components joined by `/`, no leading `./`, no trailing `/`.

    The empty string stands for the root itself. Raises ArchiveRefused.
    """
    if name.startswith("/") or DRIVE.match(name):
        raise ArchiveRefused(Code.ABSOLUTE_PATH, name)
    while name.startswith("./"):
        name = name[2:]
    name = name.removesuffix("/")
    if name in ("", "."):
        return ""
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise ArchiveRefused(Code.BAD_NAME, name, "not valid UTF-8") from error
    if len(encoded) > limits.path_bytes:
        raise ArchiveRefused(Code.PATH_TOO_LONG, name, f"more than {limits.path_bytes} bytes")
    if "\\" in name:
        raise ArchiveRefused(Code.BAD_NAME, name, "a backslash")
    if any(unicodedata.category(character) == "Cc" or character in BIDI for character in name):
        raise ArchiveRefused(Code.BAD_NAME, name, "a control character")
    if not unicodedata.is_normalized("NFC", name):
        raise ArchiveRefused(Code.BAD_NAME, name, "not in Unicode normal form C")
    components = name.split("/")
    if len(components) > limits.depth:
        raise ArchiveRefused(Code.TOO_DEEP, name, f"more than {limits.depth} components")
    for component in components:
        if component in (".", ".."):
            raise ArchiveRefused(Code.PARENT_PATH, name)
        if not component:
            raise ArchiveRefused(Code.BAD_NAME, name, "an empty component")
        if len(component.encode()) > COMPONENT_BYTES:
            raise ArchiveRefused(Code.PATH_TOO_LONG, name, f"a component of more than {COMPONENT_BYTES} bytes")
    return name


def is_left_out(path: str) -> bool:
    return any(component in LEFT_OUT for component in path.split("/"))


class Taken:
    """The names seen so far; refuses a second one that some file system could not tell from the first."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def file(self, path: str) -> None:
        """Note a file. Raises ArchiveRefused when its name, or one of its folders', is taken."""
        key = _key(path)
        if key in self._files or key in self._folders:
            raise ArchiveRefused(Code.NAME_COLLISION, path)
        self.folder(path.rpartition("/")[0])
        self._files[key] = path

    def folder(self, path: str) -> None:
        """Note a folder and those above it. The same folder may come again, in the same spelling."""
        while path:
            key = _key(path)
            if self._folders.setdefault(key, path) != path or key in self._files:
                raise ArchiveRefused(Code.NAME_COLLISION, path)
            path = path.rpartition("/")[0]


def _key(path: str) -> str:
    return unicodedata.normalize("NFC", path.casefold())
