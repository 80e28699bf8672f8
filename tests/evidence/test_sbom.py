"""The SBOM: valid CycloneDX 1.6 by the library's own schema, complete, and the same each time."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import msgspec
import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.agents import Agent
from app.evidence.sbom import render
from app.images.packages import Inventory, Package
from tests.evidence import samples
from tests.evidence.sbom_samples import INPUTS, INVENTORY

ROOT = Path(__file__).parents[2]
VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)


def rendered(**changes: object) -> dict[str, object]:
    data = render(msgspec.structs.replace(INPUTS, **changes), "0.1.0")
    problem = VALIDATOR.validate_str(data.decode())
    assert problem is None, problem
    document = json.loads(data)
    refs = [component["bom-ref"] for component in document["components"]]
    assert len(set(refs)) == len(refs)
    known = {*refs, document["metadata"]["component"]["bom-ref"]}
    assert {dependency["ref"] for dependency in document["dependencies"]} == known
    assert all(target in known for dependency in document["dependencies"] for target in dependency.get("dependsOn", ()))
    return document


def test_it_holds_every_part_by_kind_and_purl() -> None:
    document = rendered()
    purls = {component.get("purl") for component in document["components"]}  # type: ignore[attr-defined]
    assert {
        "pkg:apk/debian/musl@1.2.5-r0?arch=x86_64&distro=debian-12",
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12",
        "pkg:deb/debian/tar@1:1.34~rc?arch=amd64&distro=debian-12",
        "pkg:pypi/requests@2.32.0",
        "pkg:pypi/harbor@0.26.0",
    } <= purls
    kinds = {(component["type"], component["name"]) for component in document["components"]}  # type: ignore[attr-defined]
    assert {
        ("operating-system", "debian"),
        ("container", "image"),
        ("container", "debian"),
        ("application", "harbor"),
        ("application", "oracle"),
        ("machine-learning-model", "model"),
    } <= kinds


def test_the_library_reads_it_back_with_all_its_dependencies() -> None:
    document = rendered()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bom = Bom.from_json(document)  # type: ignore[attr-defined]
    assert len(bom.components) == len(document["components"])  # type: ignore[arg-type]
    assert bom.validate()
    edges = {
        str(dependency.ref): {str(inner.ref) for inner in dependency.dependencies} for dependency in bom.dependencies
    }
    image = edges[f"image:{samples.IMAGE.digest}"]
    assert {"os:debian:12", "pkg:pypi/requests@2.32.0"} <= image
    assert edges["agent:sha256:" + "6" * 64] == {"model:provider/model"}


def test_licenses_are_ids_expressions_or_names() -> None:
    components = {component["name"]: component for component in rendered()["components"]}  # type: ignore[attr-defined]
    assert components["requests"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert components["weird"]["licenses"] == [{"license": {"name": "see the file"}}]
    assert components["musl"]["licenses"] == [{"license": {"name": "MIT AND custom:thing"}}]
    assert "licenses" not in components["tar"]


def test_it_has_no_time_and_its_serial_number_is_that_of_its_content() -> None:
    first, same, other = rendered(), rendered(), rendered(agent=Agent(name="nop"))
    assert "timestamp" not in first["metadata"]  # type: ignore[operator]
    assert first["serialNumber"] == same["serialNumber"] != other["serialNumber"]


def test_without_an_inventory_it_says_so() -> None:
    document = rendered(inventory=None)
    image = next(part for part in document["components"] if part["name"] == "image")  # type: ignore[attr-defined]
    assert {"name": "seatrial:packages", "value": "not read: the image was gone"} in image["properties"]


def test_two_processes_give_equal_bytes() -> None:
    code = (
        "import hashlib\nfrom app.evidence.sbom import render\nfrom tests.evidence.sbom_samples import INPUTS\n"
        "print(hashlib.sha256(render(INPUTS, '0.1.0')).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_the_order_of_what_comes_in_does_not_matter() -> None:
    reversed_ = msgspec.structs.replace(INVENTORY, packages=INVENTORY.packages[::-1])
    more = (msgspec.structs.replace(samples.HARNESS, version="0.27.0"), samples.HARNESS)
    assert rendered(inventory=reversed_, harnesses=more) == rendered(harnesses=more[::-1])


@pytest.mark.parametrize(
    "base", ["debian", "debian:12", "host:5000/Org/x", "host:5000/x:1@sha256:" + "a" * 64, "a@sha256:" + "a" * 64]
)
def test_any_base_image_is_a_component(base: str) -> None:
    rendered(image=msgspec.structs.replace(samples.IMAGE, base_images=(base, base)))


name = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(str.strip)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            Package, st.sampled_from(["deb", "apk", "pypi"]), name, name, st.text(max_size=5), st.text(max_size=9)
        ),
        max_size=5,
    ),
    name,
    st.text(max_size=5),
)
def test_whatever_an_image_claims_gives_a_valid_document(packages: list[Package], os_id: str, version: str) -> None:
    rendered(inventory=Inventory(os_id, version, tuple(packages), ()))


def test_a_large_image_is_one_component_a_package() -> None:
    many = tuple(Package("deb", f"p{number}", "1", "amd64") for number in range(4000))
    data = render(msgspec.structs.replace(INPUTS, inventory=Inventory("debian", "12", many, ())), "0.1.0")
    assert len(json.loads(data)["components"]) == 4000 + 6
