"""The archive's list of contents: every file but itself, with its digest."""

from collections.abc import Iterable

import msgspec

FORMAT = "urn:seatrial:manifest:v1"
NAME = "manifest.json"


class ManifestFile(msgspec.Struct, frozen=True):
    path: str
    sha256: str
    """64 hex digits."""
    size: int
    media_type: str = "application/octet-stream"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    evaluation_id: str
    files: tuple[ManifestFile, ...]
    """Sorted by the bytes of the path: the order of the archive."""


MEDIA_TYPES = {
    "json": "application/json",
    "jsonl": "application/jsonl",
    "txt": "text/plain",
    "log": "text/plain",
    "md": "text/markdown",
}


def media_type(path: str) -> str:
    if path.endswith(".cdx.json"):
        return "application/vnd.cyclonedx+json"
    return MEDIA_TYPES.get(path.rpartition(".")[2], "application/octet-stream")


def make(evaluation_id: str, files: Iterable[ManifestFile]) -> Manifest:
    ordered = tuple(sorted(files, key=lambda file: file.path.encode()))
    return Manifest(evaluation_id=evaluation_id, files=ordered)


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=2) + b"\n"


def decode(data: bytes) -> Manifest:
    """Raises msgspec.DecodeError for what is not a manifest."""
    return msgspec.json.decode(data, type=Manifest)
