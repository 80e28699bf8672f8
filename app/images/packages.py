"""Which OS and Python packages an image holds, found in its layers."""

import msgspec


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
