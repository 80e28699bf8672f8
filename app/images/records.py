"""The records in which package managers say what they installed: dpkg, apk, Python's dist-info and egg-info. Pure."""

import email.parser
import email.policy
import re
from collections.abc import Iterator, Mapping

Found = tuple[str, str, str, str, str]
"""kind, name, version, architecture, license."""

OS_RELEASE = ("etc/os-release", "usr/lib/os-release")
"""The first that exists counts (os-release(5)); in most images it is a link to the second."""
DPKG = re.compile(r"var/lib/dpkg/(?:status|status\.d/[^/]+)")
"""`status.d` has one file a package in distroless images."""
APK = frozenset({"lib/apk/db/installed", "usr/lib/apk/db/installed"})
PYTHON = re.compile(r"(?:.*/)?(?:site|dist)-packages/[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info)")
HEAD_BYTES = 64 * 1024
SEPARATORS = re.compile(r"[-_.]+")
LINE = re.compile(r"^([A-Za-z0-9_-]+):[ \t]*(.*)$")


def wanted(path: str) -> bool:
    """Whether a file of an image is such a record. `path` without a leading slash."""
    return (
        path in OS_RELEASE
        or path in APK
        or DPKG.fullmatch(path) is not None
        or (path.endswith(("METADATA", "PKG-INFO", ".egg-info")) and PYTHON.fullmatch(path) is not None)
    )


def head_bytes(path: str) -> int | None:
    """How much of a record counts; None: all of it. Python's ends with a description of any length."""
    return HEAD_BYTES if path in OS_RELEASE or PYTHON.fullmatch(path) else None


def os_release(files: Mapping[str, bytes]) -> dict[str, str]:
    """The assignments of os-release(5)."""
    content = next((files[path] for path in OS_RELEASE if path in files), b"")
    found: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        key, given, value = line.strip().partition("=")
        if given and not key.startswith("#"):
            found[key] = value.strip().strip("\"'")[:200]
    return found


def packages(files: Mapping[str, bytes]) -> Iterator[Found]:
    """Every package of every record; one that is found twice comes twice."""
    for path, content in files.items():
        if DPKG.fullmatch(path):
            if not path.endswith(".md5sums"):
                yield from dpkg(content)
        elif path in APK:
            yield from apk(content)
        elif PYTHON.fullmatch(path):
            yield from python(content)


def dpkg(content: bytes) -> Iterator[Found]:
    """deb-status: paragraphs of `Field: value`. A package counts unless it is removed or was never unpacked."""
    for paragraph in _paragraphs(content):
        status = paragraph.get("status", "install ok installed").split()
        if (
            "package" in paragraph
            and "version" in paragraph
            and status[-1:] not in (["config-files"], ["not-installed"])
        ):
            yield "deb", paragraph["package"], paragraph["version"], paragraph.get("architecture", ""), ""


def apk(content: bytes) -> Iterator[Found]:
    """apk's installed database: paragraphs of `X:value`; case counts."""
    for paragraph in _paragraphs(content, lower=False):
        if "P" in paragraph and "V" in paragraph:
            yield "apk", paragraph["P"], paragraph["V"], paragraph.get("A", ""), paragraph.get("L", "")


def python(content: bytes) -> Iterator[Found]:
    """Core metadata (PyPA specifications): headers, then a description. The name in its normal form (PEP 503)."""
    head = re.split(rb"\r?\n\r?\n", content, maxsplit=1)[0]
    parser = email.parser.HeaderParser(policy=email.policy.compat32)
    headers = parser.parsestr(head.decode("utf-8", "replace"))
    name, version = str(headers.get("Name") or "").strip(), str(headers.get("Version") or "").strip()
    if name and version:
        expression = str(headers.get("License-Expression") or "").strip()
        yield "pypi", SEPARATORS.sub("-", name).lower(), version, "", expression


def _paragraphs(content: bytes, *, lower: bool = True) -> Iterator[dict[str, str]]:
    paragraph: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").split("\n"):
        if not line.strip():
            if paragraph:
                yield paragraph
            paragraph = {}
        elif match := LINE.match(line):
            paragraph.setdefault(match[1].lower() if lower else match[1], match[2].strip())
    if paragraph:
        yield paragraph
