"""Which OS and Python packages an image holds, found in its layers.

Reads what `docker save` and the engine's `GET /images/{name}/get` stream: a tar of layer tars, in Docker's layout or OCI's.
Nothing is unpacked; of each layer only the package managers' own records and the whiteouts are kept, and the layers are put
in order at the end, since the list of them comes last in the stream.
"""

import itertools
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from app.archives.refusal import ArchiveRefused, Limits
from app.archives.stream import Stream, chunks_of, decompressed
from app.archives.tar import Kind, TarReader
from app.images import records

RECORDS_BYTES = 256 * 1024**2
"""Of all records together, in all layers; a dpkg status of 5,000 packages has 6 MB."""
HIDDEN = 1_000_000
"""Whiteouts that are kept, in all layers."""
PACKAGES = 200_000
LAYER_LIMITS = Limits(members=5_000_000, total_bytes=1 << 40, file_bytes=1 << 40, ratio=2_000)
JSON_BYTES = 16 * 1024**2
MAGIC = slice(257, 262)
"""Where a tar says `ustar`: a layer's first member may have any name, also one that looks like JSON."""
OPAQUE = ".wh..wh..opq"
WHITEOUT = ".wh."


class Package(msgspec.Struct, frozen=True, order=True):
    kind: str
    """deb, apk or pypi: the type of its package URL."""
    name: str
    version: str
    architecture: str = ""
    license: str = ""
    """As the package's own metadata states it, or empty."""


class Inventory(msgspec.Struct, frozen=True):
    """What was found, sorted; equal images give equal inventories."""

    os_id: str
    """`ID` of /etc/os-release (debian, alpine …), or empty."""
    os_version: str
    packages: tuple[Package, ...]
    layers: tuple[str, ...]
    """Diff ids, lowest first."""
    os_name: str = ""
    """`PRETTY_NAME`."""


class ImageUnreadable(ValueError):
    """The stream is not an image that can be read."""


class Layer(msgspec.Struct, frozen=True):
    """What one layer adds and takes away."""

    files: dict[str, bytes]
    removed: frozenset[str]
    """Paths that a whiteout hides, with all below them."""
    emptied: frozenset[str]
    """Folders whose content of the layers below is hidden."""


class Budget:
    """What is left of the memory that an image may cost. Images are made by strangers."""

    def __init__(self) -> None:
        self.record_bytes, self.hidden = RECORDS_BYTES, HIDDEN

    def take(self, record_bytes: int = 0, hidden: int = 0) -> None:
        self.record_bytes -= record_bytes
        self.hidden -= hidden
        if self.record_bytes < 0 or self.hidden < 0:
            raise ImageUnreadable("its package records are larger than any real image's")


class ManifestEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One image of Docker's manifest.json, which every engine writes beside OCI's index."""

    config: str
    layers: tuple[str, ...]


class RootFilesystem(msgspec.Struct, frozen=True):
    diff_ids: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True):
    rootfs: RootFilesystem = RootFilesystem()


def read(file: BinaryIO) -> Inventory:
    """The inventory of the one image in the stream. Blocks; reads it once. Raises ImageUnreadable."""
    layers: dict[str, Layer] = {}
    documents: dict[str, bytes] = {}
    links: dict[str, str] = {}
    budget = Budget()
    try:
        reader = TarReader(Stream(chunks_of(file)), strict_end=False)
        for member in reader:
            name = member.name.removeprefix("./")
            if member.kind in (Kind.SYMBOLIC_LINK, Kind.HARD_LINK):
                links[name] = _target(name, member.link, member.kind)
            elif member.kind is Kind.FILE:
                content = reader.data()
                head = b""
                while len(head) < MAGIC.stop and (chunk := next(content, b"")):
                    head += chunk
                if head[:1] in (b"{", b"[") and head[MAGIC] != b"ustar":
                    if member.size <= JSON_BYTES:
                        budget.take(record_bytes=member.size)
                        documents[name] = head + b"".join(content)
                elif head:
                    layers[name] = _layer(_again(head, content), budget)
        return _inventory(layers, documents, links)
    except ArchiveRefused as error:
        raise ImageUnreadable(str(error)) from error


def apply(layers: list[Layer]) -> dict[str, bytes]:
    """The records that are left when the layers lie on each other, lowest first."""
    files: dict[str, bytes] = {}
    for layer in layers:
        for path in [path for path in files if _hidden(path, layer)]:
            del files[path]
        files |= layer.files
    return files


def _hidden(path: str, layer: Layer) -> bool:
    """Whether a layer takes away a path of those below it."""
    if path in layer.removed:
        return True
    while path:
        path = path.rpartition("/")[0]
        if path in layer.emptied or (path and path in layer.removed):
            return True
    return False


def _layer(chunks: Iterator[bytes], budget: Budget) -> Layer:
    files: dict[str, bytes] = {}
    removed: set[str] = set()
    emptied: set[str] = set()
    reader = TarReader(Stream(decompressed(chunks, LAYER_LIMITS)), strict_end=False)
    for member in reader:
        name = member.name.removeprefix("./").strip("/")
        folder, _, base = name.rpartition("/")
        if base == OPAQUE:
            budget.take(hidden=1, record_bytes=len(folder))
            emptied.add(folder)
        elif base.startswith(WHITEOUT):
            budget.take(hidden=1, record_bytes=len(name))
            removed.add(f"{folder}/{base[len(WHITEOUT) :]}".lstrip("/"))
        elif member.kind is Kind.FILE and records.wanted(name):
            files[name] = _record(reader, records.head_bytes(name), budget)
        elif member.kind is not Kind.FOLDER and records.wanted(name):
            # A link or the like in the place of a record hides what lay there.
            removed.add(name)
    return Layer(files, frozenset(removed), frozenset(emptied))


def _record(reader: TarReader, head_bytes: int | None, budget: Budget) -> bytes:
    """The content of a record, or as much of its head as counts."""
    kept: list[bytes] = []
    size = 0
    for chunk in reader.data():
        if head_bytes is not None:
            chunk = chunk[: max(0, head_bytes - size)]
        if chunk:
            budget.take(record_bytes=len(chunk))
            kept.append(chunk)
            size += len(chunk)
    return b"".join(kept)


def _inventory(layers: dict[str, Layer], documents: dict[str, bytes], links: dict[str, str]) -> Inventory:
    try:
        entries = msgspec.json.decode(documents["manifest.json"], type=tuple[ManifestEntry, ...])
        entry = entries[0]
        config = msgspec.json.decode(documents[entry.config], type=Config)
        ordered = [layers[links.get(name, name)] for name in entry.layers]
    except (KeyError, IndexError, msgspec.DecodeError) as error:
        raise ImageUnreadable("the image's list of layers cannot be read") from error
    files = apply(ordered)
    system = records.os_release(files)
    packages = {Package(*found) for found in itertools.islice(records.packages(files), PACKAGES + 1)}
    if len(packages) > PACKAGES:
        raise ImageUnreadable(f"it claims more than {PACKAGES} packages")
    return Inventory(
        os_id=system.get("ID", ""),
        os_version=system.get("VERSION_ID", ""),
        packages=tuple(sorted(packages)),
        layers=config.rootfs.diff_ids,
        os_name=system.get("PRETTY_NAME", ""),
    )


def _target(name: str, link: str, kind: Kind) -> str:
    """Old layouts store a layer that comes twice as a link to the first: `../<id>/layer.tar`."""
    if kind is Kind.HARD_LINK:
        return link.removeprefix("./")
    parts = name.split("/")[:-1]
    for part in link.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
