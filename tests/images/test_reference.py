"""Image references mean what Docker says they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.images.reference import ImageReference, ReferenceInvalid, parse

DIGEST = "sha256:" + "a" * 64
MEANS = {
    "debian": ("docker.io", "library/debian", "latest", None),
    "debian:12": ("docker.io", "library/debian", "12", None),
    f"debian@{DIGEST}": ("docker.io", "library/debian", None, DIGEST),
    f"debian:12@{DIGEST}": ("docker.io", "library/debian", "12", DIGEST),
    "org/name": ("docker.io", "org/name", "latest", None),
    "docker.io/debian": ("docker.io", "library/debian", "latest", None),
    "index.docker.io/org/name": ("docker.io", "org/name", "latest", None),
    "localhost/x": ("localhost", "x", "latest", None),
    "host:5000/x": ("host:5000", "x", "latest", None),
    "host:5000/x:1": ("host:5000", "x", "1", None),
    "host:5000": ("docker.io", "library/host", "5000", None),
    "a.b/c/d-e__f.g:T_1.2-3": ("a.b", "c/d-e__f.g", "T_1.2-3", None),
    "[::1]:5000/x": ("[::1]:5000", "x", "latest", None),
    "public.ecr.aws/d3j8x8q7/swe:k-v1.1": ("public.ecr.aws", "d3j8x8q7/swe", "k-v1.1", None),
    "UPPER/x": ("UPPER", "x", "latest", None),
}


@pytest.mark.parametrize("text", MEANS)
def test_defaults_are_docker_s(text: str) -> None:
    assert parse(text) == ImageReference(*MEANS[text])


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "@",
        "a//b",
        "/a",
        "a/",
        "A",
        "a:",
        "a@",
        "a:-x",
        "a:" + "t" * 129,
        "a@sha256:abc",
        "a@sha256:" + "a" * 63,
        "a..b",
        "a___b",
        "-a",
        "a b",
        "a\n",
        "a:b:c",
        "http://a/b",
        "f" * 64,
        "x" * 300,
        "${BASE}",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ReferenceInvalid):
        parse(text)


@given(st.text(max_size=40) | st.from_regex(r"[a-zA-Z0-9._:/@-]{1,40}", fullmatch=True))
def test_a_reference_in_full_or_familiar_is_itself(text: str) -> None:
    try:
        reference = parse(text)
    except ReferenceInvalid:
        return
    assert parse(str(reference)) == reference
    assert parse(reference.familiar) == reference
