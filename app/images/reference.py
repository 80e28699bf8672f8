"""Image references as Docker and OCI registries read them: `[domain/]path[:tag][@digest]`. Pure.

The grammar is that of the distribution project's `reference` package, with Docker's defaults: no domain means docker.io, no
path before the name there means library, no tag and no digest mean latest.
"""

import re

import msgspec

DEFAULT_DOMAIN = "docker.io"
DOMAIN = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
)
COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
IMAGE_ID = re.compile(r"[0-9a-f]{64}")
NAME_LENGTH = 255


class ReferenceInvalid(ValueError):
    """Not an image reference. The message says what is wrong with it."""


class ImageReference(msgspec.Struct, frozen=True):
    domain: str
    path: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        """In full, with every default written out."""
        text = f"{self.domain}/{self.path}"
        if self.tag is not None:
            text += f":{self.tag}"
        return text if self.digest is None else f"{text}@{self.digest}"

    @property
    def familiar(self) -> str:
        """As people write it: Docker's defaults left away."""
        return str(self).removeprefix(f"{DEFAULT_DOMAIN}/library/").removeprefix(f"{DEFAULT_DOMAIN}/")

    @property
    def pinned(self) -> bool:
        return self.digest is not None


def parse(text: str) -> ImageReference:
    """Raises ReferenceInvalid."""
    rest, digest, tag = text, None, None
    if "@" in rest:
        rest, _, digest = rest.partition("@")
        if not DIGEST.fullmatch(digest):
            raise ReferenceInvalid(f"{digest[:100]!r} is not a digest")
        if digest.startswith("sha256:") and len(digest) != 7 + 64:
            raise ReferenceInvalid("a sha256 digest has 64 hex digits")
    head, slash, tail = rest.rpartition("/")
    if ":" in tail:
        tail, _, tag = tail.partition(":")
        if not TAG.fullmatch(tag):
            raise ReferenceInvalid(f"{tag[:130]!r} is not a tag")
    name = head + slash + tail
    first, slash, remainder = name.partition("/")
    if slash and (any(mark in first for mark in ".:") or first == "localhost" or first.lower() != first):
        domain, path = first, remainder
    else:
        domain, path = DEFAULT_DOMAIN, name
    if domain == "index.docker.io":
        domain = DEFAULT_DOMAIN
    if domain == DEFAULT_DOMAIN and "/" not in path:
        if IMAGE_ID.fullmatch(path):
            raise ReferenceInvalid("64 hex digits are an image id, not a name")
        path = f"library/{path}"
    if not DOMAIN.fullmatch(domain):
        raise ReferenceInvalid(f"{domain[:100]!r} is not a registry's name")
    if not all(COMPONENT.fullmatch(component) for component in path.split("/")):
        raise ReferenceInvalid(
            f"{name[:100]!r} is not an image's name; it is made of lower-case letters, digits, `.`, `_`, `-`"
        )
    if len(domain) + 1 + len(path) > NAME_LENGTH:
        raise ReferenceInvalid(f"an image's name has at most {NAME_LENGTH} characters")
    return ImageReference(domain, path, "latest" if tag is None and digest is None else tag, digest)
