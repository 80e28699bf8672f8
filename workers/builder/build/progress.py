"""BuildKit's progress as buildx tells it with `--progress=rawjson`: which steps there are, what they print, which one failed.

Pure: bytes in, lines out. buildx 0.13 writes its JSON objects over many lines, later ones on one line each; what is not JSON
is buildx's own words, which are kept for a message and never searched.
"""

import base64
import binascii
import codecs
import re

import msgspec

from workers.builder.build.port import BuildLine

PENDING_BYTES = 32 * 1024**2
"""The longest object that is waited for; BuildKit's own have a few kilobytes."""
WORDS = 40
"""Lines of buildx's own words that are kept."""
METADATA = "[internal] load metadata for "
INTERNAL = "[internal] "
EXPORT = ("exporting to ", "importing cache", "exporting cache", "resolve image config")
EXIT_CODE = re.compile(r"exit code: (\d+)$")
STREAMS = {1: "stdout", 2: "stderr"}


class Vertex(msgspec.Struct, frozen=True):
    """One step of the build, as told last."""

    digest: str
    name: str = ""
    started: str | None = None
    completed: str | None = None
    cached: bool = False
    error: str = ""

    @property
    def metadata_of(self) -> str | None:
        """The image that this step looks up, when it is such a step."""
        return self.name.removeprefix(METADATA) if self.name.startswith(METADATA) else None

    @property
    def internal(self) -> bool:
        return self.name.startswith((INTERNAL, *EXPORT))

    @property
    def exit_code(self) -> int | None:
        """Of the step's command. BuildKit has it in a type, and buildx prints only the text; told to people, decides nothing."""
        match = EXIT_CODE.search(self.error)
        return int(match[1]) if match else None


class Log(msgspec.Struct, frozen=True):
    vertex: str
    stream: int = 1
    data: str = ""


class Status(msgspec.Struct, frozen=True):
    vertexes: tuple[Vertex, ...] = ()
    logs: tuple[Log, ...] = ()


class Progress:
    """Fed with what buildx writes, in any pieces."""

    def __init__(self) -> None:
        self.vertexes: dict[str, Vertex] = {}
        self.words: list[str] = []
        self._rest = b""
        self._object: list[bytes] = []
        self._texts: dict[tuple[str, int], codecs.IncrementalDecoder] = {}

    def feed(self, chunk: bytes) -> list[BuildLine]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > PENDING_BYTES:
            self._rest = b""
        return [found for line in lines for found in self._line(line)]

    def end(self) -> list[BuildLine]:
        """What is left when there is no more to come."""
        found = self._line(self._rest)
        self._rest = b""
        return found

    @property
    def failed(self) -> Vertex | None:
        """The step that failed first: those that were stopped because of it also tell an error, later."""
        failed = [vertex for vertex in self.vertexes.values() if vertex.error]
        return min(failed, key=lambda vertex: vertex.completed or "9", default=None)

    @property
    def steps(self) -> tuple[Vertex, ...]:
        return tuple(vertex for vertex in self.vertexes.values() if not vertex.internal)

    def _line(self, line: bytes) -> list[BuildLine]:
        if self._object:
            self._object.append(line)
            if line.rstrip() == b"}":
                text, self._object = b"\n".join(self._object), []
                return self._status(text)
            if sum(map(len, self._object[-1:])) > PENDING_BYTES:
                self._object = []
            return []
        if line.rstrip() == b"{":
            self._object = [line]
            return []
        if line.startswith(b"{"):
            return self._status(line)
        words = line.decode("utf-8", "replace").rstrip()
        if not words:
            return []
        self.words = [*self.words[1 - WORDS :], words]
        return [BuildLine("", "builder", words + "\n")]

    def _status(self, text: bytes) -> list[BuildLine]:
        try:
            status = msgspec.json.decode(text, type=Status)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return [BuildLine("", "builder", text.decode("utf-8", "replace") + "\n")]
        found: list[BuildLine] = []
        for vertex in status.vertexes:
            before = self.vertexes.get(vertex.digest)
            self.vertexes[vertex.digest] = vertex
            if not vertex.internal:
                found += _told(before, vertex)
        for log in status.logs:
            try:
                data = base64.b64decode(log.data)
            except (ValueError, binascii.Error):
                continue
            key = (log.vertex, log.stream)
            if key not in self._texts:
                self._texts[key] = codecs.getincrementaldecoder("utf-8")("replace")
            if told := self._texts[key].decode(data):
                step = self.vertexes.get(log.vertex)
                found.append(BuildLine(step.name if step else "", STREAMS.get(log.stream, "stderr"), told))
        return found


def _told(before: Vertex | None, now: Vertex) -> list[BuildLine]:
    """A line where a step begins, is found in the cache, or fails."""
    if now.cached and not (before and before.cached):
        return [BuildLine(now.name, "builder", f"{now.name}  cached\n")]
    if now.started and not (before and before.started):
        return [BuildLine(now.name, "builder", f"{now.name}\n")]
    if now.error and not (before and before.error):
        return [BuildLine(now.name, "builder", f"{now.error}\n")]
    return []
