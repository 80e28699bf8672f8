"""Which OS and Python packages an image holds, found in its layers.

Reads what `docker save` and the engine's `GET /images/{name}/get` stream: a tar of layer tars, in Docker's layout or OCI's.
Nothing is unpacked; of each layer only the package managers' own records and the whiteouts are kept, and the layers are put
in order at the end, since the list of them comes last in the stream.
"""

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from app.archives.refusal import ArchiveRefused, Limits
from app.archives.stream import Stream, chunks_of, decompressed
from app.archives.tar import Kind, TarReader
from app.images import records

RECORD_BYTES = 64 * 1024**2
"""Of one record; a dpkg status of 5,000 packages has 6 MB. A larger one is not read."""
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
    removed: tuple[str, ...]
    """Paths that a whiteout hides, with all below them."""
    emptied: tuple[str, ...]
    """Folders whose content of the layers below is hidden."""


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
                        documents[name] = head + b"".join(content)
                elif head:
                    layers[name] = _layer(_again(head, content))
        return _inventory(layers, documents, links)
    except ArchiveRefused as error:
        raise ImageUnreadable(str(error)) from error


def apply(layers: list[Layer]) -> dict[str, bytes]:
    """The records that are left when the layers lie on each other, lowest first."""
    files: dict[str, bytes] = {}
    for layer in layers:
        hidden = (*(f"{path}/" for path in (*layer.removed, *layer.emptied)),)
        for path in [path for path in files if path in layer.removed or path.startswith(hidden)]:
            del files[path]
        files |= layer.files
    return files


def _layer(chunks: Iterator[bytes]) -> Layer:
    files: dict[str, bytes] = {}
    removed: list[str] = []
    emptied: list[str] = []
    reader = TarReader(Stream(decompressed(chunks, LAYER_LIMITS)), strict_end=False)
    for member in reader:
        name = member.name.removeprefix("./").strip("/")
        folder, _, base = name.rpartition("/")
        if base == OPAQUE:
            emptied.append(folder)
        elif base.startswith(WHITEOUT):
            removed.append(f"{folder}/{base[len(WHITEOUT) :]}".lstrip("/"))
        elif member.kind is Kind.FILE and member.size <= RECORD_BYTES and records.wanted(name):
            files[name] = b"".join(reader.data())
        elif member.kind is not Kind.FOLDER and records.wanted(name):
            # A link or the like in the place of a record hides what lay there.
            removed.append(name)
    return Layer(files, tuple(removed), tuple(emptied))


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
    packages = {Package(*found) for found in records.packages(files)}
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
