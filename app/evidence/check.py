"""Reading an evidence archive without trust: is everything in it that its manifest says, and nothing else?

This alone proves that the archive is whole, not who made it: that is for the signed statement.
"""

import enum
import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from app.archives import names
from app.archives.refusal import ArchiveRefused, printable
from app.archives.stream import Stream, decompressed, file_chunks
from app.archives.tar import Kind, TarReader
from app.evidence import manifest, provenance
from app.evidence.archive import EVENTS, LIMITS, PROVENANCE, SBOM
from app.evidence.manifest import Manifest, ManifestFile
from app.evidence.provenance import Provenance

DOCUMENT_BYTES = 256 * 1024**2
"""Of the manifest or the provenance: the only members that are held in memory."""


class Code(enum.StrEnum):
    UNREADABLE = "unreadable"
    """Not an archive that Seatrial wrote, or damaged."""
    NO_MANIFEST = "no_manifest"
    """The first member is not a manifest that can be read."""
    NOT_LISTED = "not_listed"
    """A member that the manifest does not name."""
    MISSING = "missing"
    """The manifest names it, and it is not there."""
    CHANGED = "changed"
    """Other bytes than the manifest says."""
    MISPLACED = "misplaced"
    """Not in the order of the manifest, or twice: sealing never does that."""
    BAD_PROVENANCE = "bad_provenance"
    """The provenance cannot be read, speaks of another evaluation, or adopts a trial without saying where the log has it."""
    SUBJECT_DIFFERS = "subject_differs"
    """The provenance vouches for other bytes than the manifest names."""


class Problem(msgspec.Struct, frozen=True):
    code: Code
    path: str
    """Of the member; empty for the archive as a whole."""
    detail: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    """Of the archive file."""
    size: int
    files: int
    """Members that were read."""
    problems: tuple[Problem, ...]
    manifest: Manifest | None = None
    provenance: Provenance | None = None
    """What the archive says, when that could be read; worth something only if `ok`."""

    @property
    def ok(self) -> bool:
        return not self.problems


def check(path: Path) -> Report:
    """Read the whole archive. Blocks; writes nothing. Raises OSError only."""
    state = _Check()
    digest, size = hashlib.sha256(), 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for chunk in file_chunks(path):
            digest.update(chunk)
            size += len(chunk)
            yield chunk

    chunks = counted()
    try:
        state.members(TarReader(Stream(decompressed(chunks, LIMITS))))
    except ArchiveRefused as refused:
        state.add(Code.UNREADABLE, "", str(refused))
    for _ in chunks:
        pass
    state.conclude()
    return Report(
        sha256=digest.hexdigest(),
        size=size,
        files=state.count,
        problems=tuple(state.problems),
        manifest=state.manifest,
        provenance=state.provenance,
    )


class _Check:
    """What is known so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.manifest: Manifest | None = None
        self.provenance: Provenance | None = None
        self.count = 0
        self._seen: set[str] = set()

    def add(self, code: Code, path: str, detail: str = "") -> None:
        self.problems.append(Problem(code, printable(path), detail))

    def members(self, reader: TarReader) -> None:
        listed: dict[str, tuple[int, ManifestFile]] = {}
        expected = 0
        for member in reader:
            self.count += 1
            name = names.clean(member.name, LIMITS)
            if member.kind is not Kind.FILE or name != member.name:
                self.add(Code.UNREADABLE, member.name, "not a plain file")
                continue
            if self.count == 1:
                if name != manifest.NAME or not self._read_manifest(b"".join(_bounded(reader))):
                    self.add(Code.NO_MANIFEST, name)
                    return
                assert self.manifest is not None
                listed = {file.path: (place, file) for place, file in enumerate(self.manifest.files)}
                if len(listed) != len(self.manifest.files):
                    self.add(Code.MISPLACED, name, "it lists a file twice")
                continue
            found = listed.get(name)
            if found is None:
                self.add(Code.NOT_LISTED, name)
                continue
            place, file = found
            if name in self._seen or place < expected:
                self.add(Code.MISPLACED, name)
            self._seen.add(name)
            expected = place + 1
            self._content(reader, file)

    def conclude(self) -> None:
        if self.manifest is None:
            if not self.problems:
                self.add(Code.NO_MANIFEST, "")
            return
        digests = {file.path: file.sha256 for file in self.manifest.files}
        for path in digests:
            if path not in self._seen:
                self.add(Code.MISSING, path)
        for path in (PROVENANCE, SBOM, EVENTS):
            if path not in digests:
                self.add(Code.MISSING, path)
        if self.provenance is None:
            if PROVENANCE in self._seen:
                self.add(Code.BAD_PROVENANCE, PROVENANCE)
            return
        if self.provenance.evaluation_id != self.manifest.evaluation_id:
            self.add(Code.BAD_PROVENANCE, PROVENANCE, "it speaks of another evaluation")
        named = {stream.stream for stream in self.provenance.streams}
        for record in self.provenance.trials:
            if record.adopted_from is not None and not {record.trial_id, record.adopted_from} <= named:
                detail = f"trial {record.ordinal} adopts the score of {record.adopted_from}, of which it says no more"
                self.add(Code.BAD_PROVENANCE, PROVENANCE, detail)
        vouched = {subject.name: subject.sha256 for subject in self.provenance.subject}
        for path, sha256 in vouched.items():
            if digests.get(path) != sha256:
                self.add(Code.SUBJECT_DIFFERS, path)
        for path in digests:
            if (path.startswith("trials/") or path in (SBOM, EVENTS)) and path not in vouched:
                self.add(Code.SUBJECT_DIFFERS, path, "the provenance does not vouch for it")

    def _read_manifest(self, content: bytes) -> bool:
        try:
            self.manifest = manifest.decode(content)
        except msgspec.DecodeError:
            return False
        return self.manifest.format == manifest.FORMAT

    def _content(self, reader: TarReader, file: ManifestFile) -> None:
        digest, size = hashlib.sha256(), 0
        kept: list[bytes] | None = [] if file.path == PROVENANCE and file.size <= DOCUMENT_BYTES else None
        for chunk in reader.data():
            digest.update(chunk)
            size += len(chunk)
            if kept is not None and size <= DOCUMENT_BYTES:
                kept.append(chunk)
        if size != file.size or digest.hexdigest() != file.sha256:
            self.add(Code.CHANGED, file.path)
        elif kept is not None:
            try:
                self.provenance = provenance.decode(b"".join(kept))
            except msgspec.DecodeError as error:
                self.add(Code.BAD_PROVENANCE, PROVENANCE, str(error))


def _bounded(reader: TarReader) -> Iterator[bytes]:
    size = 0
    for chunk in reader.data():
        size += len(chunk)
        if size > DOCUMENT_BYTES:
            return
        yield chunk
