"""The packages in an image are those that are left when its layers lie on each other."""

import gzip
import io
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.images import packages
from app.images.packages import ImageUnreadable, Package
from tests.archives.samples import zst
from tests.images import samples

STATUS = "var/lib/dpkg/status"
SITE = "usr/lib/python3/dist-packages"


def found(*layers: bytes, legacy: bool = False) -> set[tuple[str, str, str]]:
    inventory = packages.read(samples.saved(list(layers), legacy=legacy))
    return {(package.kind, package.name, package.version) for package in inventory.packages}


def test_every_kind_of_record_is_read() -> None:
    layer = samples.layer(
        {
            STATUS: samples.dpkg("bash=5.2-1", "tar=1:1.34"),
            "var/lib/dpkg/status.d/base-files": samples.dpkg("base-files=12"),
            "lib/apk/db/installed": b"C:Q1x\nP:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\n\nP:zlib\nV:1.3\n\n",
            f"{SITE}/Zope.Interface-5.0.dist-info/METADATA": samples.metadata("Zope.Interface", "5.0", "ZPL-2.1"),
            "opt/venv/lib/python3.12/site-packages/old.egg-info/PKG-INFO": samples.metadata("old", "1"),
            "opt/venv/lib/python3.12/site-packages/single-2.egg-info": samples.metadata("single", "2"),
            "home/user/METADATA": samples.metadata("not-installed", "1"),
            "etc/os-release": b'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian 12"\n',
        }
    )
    inventory = packages.read(samples.saved([layer]))
    assert (inventory.os_id, inventory.os_version, inventory.os_name) == ("debian", "12", "Debian 12")
    assert len(inventory.layers) == 1
    assert inventory.packages == (
        Package("apk", "musl", "1.2.5-r0", "x86_64", "MIT"),
        Package("apk", "zlib", "1.3"),
        Package("deb", "base-files", "12", "amd64"),
        Package("deb", "bash", "5.2-1", "amd64"),
        Package("deb", "tar", "1:1.34", "amd64"),
        Package("pypi", "old", "1"),
        Package("pypi", "single", "2"),
        Package("pypi", "zope-interface", "5.0", "", "ZPL-2.1"),
    )


def test_a_removed_package_is_not_installed() -> None:
    layer = samples.layer(
        {STATUS: samples.dpkg("gone=1", status="deinstall ok config-files") + b"\n" + samples.dpkg("here=1")}
    )
    assert found(layer) == {("deb", "here", "1")}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zst])
def test_both_layouts_and_compressed_layers_are_read(legacy: bool, compress: Callable[[bytes], bytes]) -> None:
    assert found(compress(samples.layer({STATUS: samples.dpkg("a=1")})), legacy=legacy) == {("deb", "a", "1")}


def test_the_upper_layer_wins_whatever_the_order_of_the_stream() -> None:
    lower = samples.layer({STATUS: samples.dpkg("a=1", "b=1")})
    upper = samples.layer({STATUS: samples.dpkg("a=2")})
    assert found(lower, upper) == {("deb", "a", "2")}
    assert found(upper, lower) == {("deb", "a", "1"), ("deb", "b", "1")}
    assert found(lower, upper, lower) == {("deb", "a", "1"), ("deb", "b", "1")}


def test_whiteouts_hide_what_lies_below_and_only_that() -> None:
    one, two = f"{SITE}/one-1.dist-info", f"{SITE}/two-1.dist-info"
    lower = samples.layer(
        {f"{one}/METADATA": samples.metadata("one", "1"), f"{two}/METADATA": samples.metadata("two", "1")}
    )
    assert found(lower, samples.layer({f"{SITE}/.wh.one-1.dist-info": b""})) == {("pypi", "two", "1")}
    assert found(lower, samples.layer({f"{one}/.wh.METADATA": b""})) == {("pypi", "two", "1")}
    assert found(lower, samples.layer({"usr/.wh.lib": b""})) == set()
    assert found(lower, samples.layer({f"{SITE}/.wh..wh..opq": b""})) == set()
    three = {f"{SITE}/.wh..wh..opq": b"", f"{SITE}/three-1.dist-info/METADATA": samples.metadata("three", "1")}
    assert found(lower, samples.layer(three)) == {("pypi", "three", "1")}
    assert found(samples.layer({f"{SITE}/.wh.one-1.dist-info": b""}), lower) == {
        ("pypi", "one", "1"),
        ("pypi", "two", "1"),
    }
    assert found(lower, samples.layer({"us/.wh.lib": b"", "usr/li/.wh..wh..opq": b""})) != set()


def test_a_link_in_the_place_of_a_record_hides_it() -> None:
    lower = samples.layer({STATUS: samples.dpkg("a=1")})
    assert found(lower, samples.layer({}, links={STATUS: "/dev/null"})) == set()


def test_a_layer_that_looks_like_json_is_a_layer() -> None:
    assert found(samples.layer({"{": b"", STATUS: samples.dpkg("a=1")})) == {("deb", "a", "1")}


@pytest.mark.parametrize("data", [b"", b"hello" * 200, bytes(10240), samples.layer({"manifest.json": b"[]"})])
def test_what_is_no_image_is_unreadable(data: bytes) -> None:
    with pytest.raises(ImageUnreadable):
        packages.read(io.BytesIO(data))


def test_a_cut_image_is_unreadable() -> None:
    whole = samples.saved([samples.layer({STATUS: samples.dpkg("a=1")})]).getvalue()
    for length in range(0, len(whole) - 10240, 512):
        with pytest.raises(ImageUnreadable):
            packages.read(io.BytesIO(whole[:length]))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_no_record_crashes_the_reader(content: bytes) -> None:
    paths = (STATUS, "lib/apk/db/installed", f"{SITE}/x-1.dist-info/METADATA", "etc/os-release")
    packages.read(samples.saved([samples.layer(dict.fromkeys(paths, content))]))


def test_an_image_that_would_fill_the_memory_is_unreadable() -> None:
    bombs = {
        "records": {f"a{number}/site-packages/x-1.dist-info/METADATA": bytes(70_000) for number in range(4500)},
        "one record": {STATUS: bytes(300 * 1024**2)},
    }
    for layer in map(samples.layer, bombs.values()):
        with pytest.raises(ImageUnreadable):
            packages.read(samples.saved([gzip.compress(layer, 1)]))


def test_a_root_that_is_emptied_hides_everything_below() -> None:
    lower = samples.layer({STATUS: samples.dpkg("a=1")})
    assert found(lower, samples.layer({".wh..wh..opq": b""})) == set()


@pytest.mark.docker
def test_a_real_image_has_the_packages_that_its_own_dpkg_lists(docker_host: str) -> None:
    """Debian's stand-in, or the published image: read from the engine, compared with dpkg-query in the image."""
    from app.local.baseimage import DEBIAN_BASE, ensure_image
    from app.local.engine import ensure
    from app.settings import load

    ensure_image(ensure(load()), DEBIAN_BASE)
    docker = ["docker", "--host", docker_host]
    query = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}|${Package}|${Version}|${Architecture}\n"]
    listed = subprocess.run(
        [*docker, "run", "--rm", "--network", "none", DEBIAN_BASE, *query], capture_output=True, text=True, check=True
    )
    expected = {tuple(line.split("|")[1:]) for line in listed.stdout.splitlines() if line.startswith("ii")}
    with subprocess.Popen([*docker, "save", DEBIAN_BASE], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inventory = packages.read(process.stdout)  # type: ignore[arg-type]
    assert len(expected) > 50
    assert {
        (package.name, package.version, package.architecture) for package in inventory.packages if package.kind == "deb"
    } == expected
    assert (inventory.os_id, inventory.os_version) == ("debian", "12")
