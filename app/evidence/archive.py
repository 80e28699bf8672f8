"""Sealing the archive of one evaluation: a tar.zst that is the same for the same inputs.

manifest.json                               every other file with its digest; always the first member
provenance.json                             app/evidence/provenance.py
sbom.cdx.json                               app/evidence/sbom.py
events.jsonl                                the streams' events, as the log has them
trials/<ordinal>/executions/<number>/…      what each execution left: result.json, logs, artifacts
README.md                                   what each file is, and how to check it
statement/README.md  proofs/README.md       reserved for the signed statement and the proofs of inclusion
"""

import asyncio
import hashlib
import os
import secrets
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import msgspec

from app.archives import names
from app.archives.refusal import Limits
from app.archives.write import TarWriter
from app.evidence import manifest, provenance
from app.evidence.manifest import ManifestFile
from app.evidence.provenance import Provenance, Subject

PROVENANCE = "provenance.json"
SBOM = "sbom.cdx.json"
EVENTS = "events.jsonl"
LIMITS = Limits(
    members=2_000_000, total_bytes=1 << 42, file_bytes=1 << 40, ratio=100_000, depth=5_000, path_bytes=65_536
)
"""For reading one back: it is streamed, never unpacked, so only its time is at stake."""
README = b"""# The evidence of one evaluation

Check it with `seatrial verify ARCHIVE`, without a server: every file must be as manifest.json says, and nothing else be in it.

manifest.json       every other file with its size and SHA-256
provenance.json     what ran, on what, by whom: pack, image, agent, harness, every trial with its executions, its reward or
                    failure, and its validity record; where the event log tells of it
sbom.cdx.json       CycloneDX 1.6: what is in the image, with the agent and the harness
events.jsonl        the events themselves, in the order of the log. An event's hash is the SHA-256 over these fields, each
                    preceded by its length in 4 bytes: hash of the stream's event before, stream, version, event id, type,
                    schema version, team, time, data, meta, private hash (numbers big-endian, the time in microseconds
                    since 2000-01-01 UTC). Private text is not here; its hash is
trials/N/executions/M/
    result.json     what happened in try M of trial N, as it was judged
    log.jsonl       its output; files.json lists what lies below files/
                    A trial whose provenance says adopted_from did not run in this run: a retry took over its score. What is
                    here is of the trial that ran, and events.jsonl has that trial's events, and where they began
statement/ proofs/  reserved for the signed statement and the proofs that the events are in the signed log
"""
"""For whoever opens an archive years later."""
RESERVED = {
    "README.md": README,
    "statement/README.md": b"Reserved for the DSSE envelope with the signed in-toto statement about this archive.\n",
    "proofs/README.md": b"Reserved for the proofs that the events of this archive are in the signed log.\n",
}


class EvidenceFile(msgspec.Struct, frozen=True):
    """A stored file that goes in. Its bytes are read while the archive is written, and must be those of its digest."""

    path: str
    """In the archive: as `execution_path` makes it."""
    sha256: str
    """64 hex digits."""
    size: int
    open: Callable[[], AsyncIterable[bytes]]


class EvidenceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that one archive is made of. Equal inputs give equal bytes."""

    provenance: Provenance
    """`subject` is filled in here."""
    sbom: bytes
    """CycloneDX JSON: `sbom.render`."""
    events: bytes
    """One JSON object a line, in commit order."""
    files: tuple[EvidenceFile, ...] = ()
    """In any order."""


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A complete archive. Digests are 64 hex digits."""

    sha256: str
    size: int
    files: int
    """Members, the manifest included."""
    manifest_sha256: str
    provenance_sha256: str
    sbom_sha256: str


class SourceChanged(Exception):
    """A stored file does not have the bytes that its digest says. The archive was not written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has other bytes than its digest says")
        self.path = path


def execution_path(ordinal: int, number: int, name: str) -> str:
    """Where the file `name` of execution `number` of trial `ordinal` lies in the archive.

    `name` is what an agent may have chosen. Characters that an archive's path cannot hold are percent-encoded, as are
    `%` itself, and `.` and `..` as whole components; so two names never become one.
    """
    return f"trials/{ordinal}/executions/{number}/{'/'.join(_safe(part) for part in name.split('/'))}"


async def build_archive(destination: Path, inputs: EvidenceInputs) -> Sealed:
    """Write the archive to `destination`, whole or not at all. Raises SourceChanged, OSError, and what a source raises.

    Streams: no stored file is ever held in memory.
    """
    documents, files = _documents(inputs)
    listed = [_listed(path, content) for path, content in documents.items()]
    listed += [
        ManifestFile(file.path, file.sha256, file.size, manifest.media_type(file.path)) for file in files.values()
    ]
    contents = manifest.make(inputs.provenance.evaluation_id, listed)
    contents_json = manifest.encode(contents)
    aside = destination.parent / f".{destination.name}.{secrets.token_hex(6)}.partial"
    try:
        with aside.open("xb") as raw:
            out = _Digested(raw)
            writer = TarWriter(out)
            await asyncio.to_thread(writer.file, manifest.NAME, len(contents_json), [contents_json])
            for file in contents.files:
                if file.path in documents:
                    await asyncio.to_thread(writer.file, file.path, file.size, [documents[file.path]])
                else:
                    await _stream(writer, files[file.path])
            await asyncio.to_thread(writer.close)
        os.replace(aside, destination)  # noqa: PTH105 (says that it replaces)
    finally:
        aside.unlink(missing_ok=True)
    return Sealed(
        sha256=out.digest.hexdigest(),
        size=out.size,
        files=len(contents.files) + 1,
        manifest_sha256=hashlib.sha256(contents_json).hexdigest(),
        provenance_sha256=hashlib.sha256(documents[PROVENANCE]).hexdigest(),
        sbom_sha256=hashlib.sha256(inputs.sbom).hexdigest(),
    )


def _documents(inputs: EvidenceInputs) -> tuple[dict[str, bytes], dict[str, EvidenceFile]]:
    """What is written from memory, and what is streamed, by path. Raises ValueError for a path that cannot be."""
    files = {file.path: file for file in inputs.files}
    if len(files) != len(inputs.files):
        raise ValueError("two files have the same path")
    for path in files:
        if names.clean(path, LIMITS) != path or not path.startswith("trials/"):
            raise ValueError(f"{path!r} is not a path below trials/")
    documents = {SBOM: inputs.sbom, EVENTS: inputs.events}
    subjects = [Subject(path, hashlib.sha256(content).hexdigest()) for path, content in documents.items()]
    subjects += [Subject(file.path, file.sha256) for file in files.values()]
    subjects.sort(key=lambda subject: subject.name.encode())
    stated = msgspec.structs.replace(inputs.provenance, subject=tuple(subjects))
    return {**documents, **RESERVED, PROVENANCE: provenance.encode(stated)}, files


async def _stream(writer: TarWriter, file: EvidenceFile) -> None:
    digest, size = hashlib.sha256(), 0
    writer.begin(file.path, file.size)
    async for chunk in _source(file):
        size += len(chunk)
        if size > file.size:
            break
        digest.update(chunk)
        # The compressor is what takes time; it leaves the event loop free.
        await asyncio.to_thread(writer.feed, chunk)
    if size != file.size or digest.hexdigest() != file.sha256:
        raise SourceChanged(file.path)
    writer.end(file.size)


async def _source(file: EvidenceFile) -> AsyncIterator[bytes]:
    async for chunk in file.open():
        yield chunk


def _listed(path: str, content: bytes) -> ManifestFile:
    return ManifestFile(path, hashlib.sha256(content).hexdigest(), len(content), manifest.media_type(path))


class _Digested:
    """A file that knows the digest of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)


def _safe(component: str) -> str:
    """A component that every reader takes; no two become one. `%` followed by no hex digits marks what is not a character."""
    if component in ("", ".", ".."):
        return component.replace(".", "%2E") or "%"
    encoded = _encoded(component, ascii_only=False)
    if not unicodedata.is_normalized("NFC", encoded):
        encoded = _encoded(component, ascii_only=True)
    if len(encoded.encode()) <= names.COMPONENT_BYTES:
        return encoded
    digest = hashlib.sha256(component.encode("utf-8", "surrogatepass")).hexdigest()
    return encoded.encode()[:180].decode("utf-8", "ignore") + "%~" + digest


def _encoded(component: str, *, ascii_only: bool) -> str:
    return "".join(character if _plain(character, ascii_only) else _percent(character) for character in component)


def _percent(character: str) -> str:
    """Its bytes, also of one that stands for a byte that is no text; another surrogate, which no file's name has, as %uXXXX."""
    try:
        return quote(character.encode("utf-8", "surrogateescape"), safe="")
    except UnicodeEncodeError:
        return f"%u{ord(character):04X}"


def _plain(character: str, ascii_only: bool) -> bool:
    if character.isascii():
        return character.isprintable() and character not in "%\\"
    return not ascii_only and unicodedata.category(character) not in ("Cc", "Cs") and character not in names.BIDI
