"""Sealing and reading the archive of one evaluation: a tar.zst that is the same for the same inputs.

manifest.json                               every other file with its digest; always the first member
provenance.json                             app/evidence/provenance.py
sbom.cdx.json                               app/evidence/sbom.py
events.jsonl                                the streams' events, as the log has them
trials/<ordinal>/executions/<number>/…      what each execution left: result.json, logs, artifacts
statement/README.md  proofs/README.md       reserved for the signed statement and the proofs of inclusion
"""

from collections.abc import AsyncIterable, Callable

import msgspec

from app.evidence.provenance import Provenance


class EvidenceFile(msgspec.Struct, frozen=True):
    """A stored file that goes in. Its bytes are read while the archive is written, and must be those of its digest."""

    path: str
    """In the archive: `trials/<ordinal>/executions/<number>/…` (see `execution_path`)."""
    sha256: str
    size: int
    open: Callable[[], AsyncIterable[bytes]]


class EvidenceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that one archive is made of. Equal inputs give equal bytes."""

    provenance: Provenance
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
    """Where the file `name` of execution `number` of trial `ordinal` lies in the archive."""
    return f"trials/{ordinal}/executions/{number}/{name}"
