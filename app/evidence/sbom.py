"""What an evaluation ran on, as CycloneDX 1.6: the image and its packages, the harness, the agent and its model.

The only module that imports cyclonedx. Each component is made and serialised by the library; the document around them is
put together here, because the library's own output looks every component up in a list (cyclonedx-python-lib#1006: 4,000
components take 9 to 16 s). The components of an image are kept, since many evaluations share one. Deterministic: every
bom-ref is given, the serial number comes from the content, and there is no time.
"""

import functools
import hashlib
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec
from cyclonedx import model
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import component
from cyclonedx.model.component import ComponentType
from cyclonedx.schema.schema import SchemaVersion1Dot6
from packageurl import PackageURL

from app.domain.agents import Agent
from app.domain.events import Image
from app.evidence.provenance import HarnessRecord
from app.images.packages import Inventory, Package

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
SERIALS = uuid.UUID("6f0f6a0e-9c5e-5d0b-8d43-8d6b1b9d5c11")
"""The name space of our serial numbers (RFC 9562, version 5)."""
KEPT_IMAGES = 32

# The library's decorators hide the types of its own classes.
Component: Any = component.Component
HashType: Any = model.HashType
Property: Any = model.Property
HASHES: Any = model.HashAlgorithm


class SbomInputs(msgspec.Struct, frozen=True, kw_only=True):
    image: Image
    inventory: Inventory | None
    """None when the image could not be read any more: the SBOM then says so."""
    pack_digest: str
    agent: Agent
    agent_digest: str
    harnesses: tuple[HarnessRecord, ...] = ()
    """Every harness that an execution ran with."""


class Fragment(msgspec.Struct, frozen=True):
    """One component, serialised."""

    ref: str
    json: msgspec.Raw


class Dependency(msgspec.Struct, frozen=True, rename={"depends_on": "dependsOn"}):
    ref: str
    depends_on: tuple[str, ...]


class Metadata(msgspec.Struct, frozen=True):
    component: msgspec.Raw
    tools: msgspec.Raw


class Document(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = msgspec.field(name="$schema", default=SCHEMA)
    bom_format: str = msgspec.field(name="bomFormat", default="CycloneDX")
    spec_version: str = msgspec.field(name="specVersion", default="1.6")
    serial_number: str = msgspec.field(name="serialNumber", default="")
    version: int = 1
    metadata: Metadata
    components: tuple[msgspec.Raw, ...]
    dependencies: tuple[Dependency, ...]


def render(inputs: SbomInputs, seatrial_version: str) -> bytes:
    """The SBOM as JSON. Equal inputs give equal bytes. Takes up to a second for a large image: use a thread."""
    packages = image_components(inputs.inventory) if inputs.inventory is not None else ()
    image = _image(inputs)
    bases = tuple(_base(name) for name in sorted(set(inputs.image.base_images)))
    harnesses = tuple(_harness(record) for record in sorted(set(inputs.harnesses), key=msgspec.json.encode))
    agent = _agent(inputs.agent, inputs.agent_digest)
    models = (_model(inputs.agent.model),) if inputs.agent.model else ()
    root = Component(
        name="evaluation", type=ComponentType.APPLICATION, bom_ref=f"evaluation:{inputs.pack_digest}", version="1"
    )
    parts = _unique((image, *bases, *packages, *harnesses, agent, *models))
    dependencies = [
        Dependency(f"evaluation:{inputs.pack_digest}", _refs((image, *harnesses, agent))),
        Dependency(image.ref, _refs((*bases, *packages))),
        *(Dependency(harness.ref, ()) for harness in harnesses),
        Dependency(agent.ref, _refs(models)),
        *(Dependency(part.ref, ()) for part in _unique((*bases, *packages, *models))),
    ]
    tools = _json(
        Component(name="seatrial", type=ComponentType.APPLICATION, version=seatrial_version, bom_ref="seatrial")
    )
    document = Document(
        metadata=Metadata(msgspec.Raw(_json(root)), msgspec.Raw(b'{"components":[' + tools + b"]}")),
        components=tuple(part.json for part in parts),
        dependencies=tuple(sorted(dependencies, key=lambda dependency: dependency.ref)),
    )
    digest = hashlib.sha256(msgspec.json.encode(document)).hexdigest()
    document = msgspec.structs.replace(document, serial_number=uuid.uuid5(SERIALS, digest).urn)
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


@functools.lru_cache(maxsize=KEPT_IMAGES)
def image_components(inventory: Inventory) -> tuple[Fragment, ...]:
    """The operating system and every package, by bom-ref."""
    found: list[Fragment] = []
    if inventory.os_id:
        name = inventory.os_name or inventory.os_id
        system = Component(
            name=inventory.os_id,
            version=inventory.os_version or None,
            description=name,
            type=ComponentType.OPERATING_SYSTEM,
            bom_ref=f"os:{inventory.os_id}:{inventory.os_version}",
        )
        found.append(_fragment(system))
    licenses = LicenseFactory()
    found += (_fragment(_package(package, inventory, licenses)) for package in inventory.packages)
    return _unique(found)


def _package(package: Package, inventory: Inventory, licenses: LicenseFactory) -> Any:
    if package.kind == "pypi":
        purl = PackageURL("pypi", None, package.name, package.version)
    else:
        # The name space of a distribution's packages is its ID; a package without a distribution has none.
        distro = f"{inventory.os_id}-{inventory.os_version}" if inventory.os_id and inventory.os_version else None
        qualifiers = {"arch": package.architecture or None, "distro": distro}
        given = {key: value for key, value in qualifiers.items() if value}
        purl = PackageURL(package.kind, inventory.os_id or None, package.name, package.version, given)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[licenses.make_from_string(package.license)] if package.license else None,
    )


def _image(inputs: SbomInputs) -> Fragment:
    image = inputs.image
    algorithm, _, value = image.digest.partition(":")
    properties = {
        "seatrial:pack": inputs.pack_digest,
        "seatrial:architecture": image.architecture,
        "seatrial:packages": "read from the layers: dpkg, apk, Python"
        if inputs.inventory
        else "not read: the image was gone",
    }
    return _fragment(
        Component(
            name="image",
            version=image.digest,
            type=ComponentType.CONTAINER,
            bom_ref=f"image:{image.digest}",
            hashes=[HashType(alg=HASHES.SHA_256, content=value)] if algorithm == "sha256" else None,
            properties=[Property(name=name, value=text) for name, text in properties.items()],
        )
    )


def _base(name: str) -> Fragment:
    """An image that the pack builds on: `name[:tag][@digest]`."""
    named, _, digest = name.partition("@")
    repository, colon, tag = named.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = named, ""
    qualifiers = {"repository_url": repository, "tag": tag} if tag else {"repository_url": repository}
    purl = PackageURL("oci", None, repository.rpartition("/")[2].lower(), digest or None, qualifiers)
    return _fragment(
        Component(
            name=repository,
            version=digest or tag or None,
            type=ComponentType.CONTAINER,
            purl=purl,
            bom_ref=purl.to_string(),
        )
    )


def _harness(record: HarnessRecord) -> Fragment:
    purl = PackageURL("pypi", None, record.name, record.version)
    return _fragment(
        Component(
            name=record.name,
            version=record.version,
            type=ComponentType.APPLICATION,
            purl=purl,
            bom_ref=f"harness:{record.name}:{record.version}:{record.overlay_digest}",
            properties=[Property(name="seatrial:overlay", value=record.overlay_digest)],
        )
    )


def _agent(agent: Agent, digest: str) -> Fragment:
    return _fragment(
        Component(
            name=agent.name,
            version=agent.version,
            type=ComponentType.APPLICATION,
            bom_ref=f"agent:{digest}",
            properties=[Property(name="seatrial:agent", value=digest)],
        )
    )


def _model(name: str) -> Fragment:
    """`provider/name` or `name`. The weights are not ours to see, so there is no digest."""
    provider, _, short = name.rpartition("/")
    return _fragment(
        Component(
            name=short, group=provider or None, type=ComponentType.MACHINE_LEARNING_MODEL, bom_ref=f"model:{name}"
        )
    )


def _fragment(made: Any) -> Fragment:
    return Fragment(str(made.bom_ref.value), msgspec.Raw(_json(made)))


def _json(made: Any) -> bytes:
    """The library's own JSON, its keys in one order."""
    text: str = made.as_json(view_=SchemaVersion1Dot6)
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")


def _unique(fragments: Iterable[Fragment]) -> tuple[Fragment, ...]:
    """One of each bom-ref, by bom-ref; of equal ones the first."""
    by_ref: dict[str, Fragment] = {}
    for fragment in fragments:
        by_ref.setdefault(fragment.ref, fragment)
    return tuple(by_ref[ref] for ref in sorted(by_ref))


def _refs(fragments: Iterable[Fragment]) -> tuple[str, ...]:
    return tuple(sorted({fragment.ref for fragment in fragments}))
