"""A digest is spelled in one place, and whatever is none is told from one."""

import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import digests

ROOT = Path(__file__).parents[1]
OWN_SPELLING = re.compile(r"""removeprefix\(["']sha256:|["']sha256:["'] \+|f["']sha256:\{""")


@given(st.binary())
def test_a_digest_is_that_of_sha256_in_each_spelling(content: bytes) -> None:
    hashed = hashlib.sha256(content)
    digest = digests.of(content)
    assert digest == f"sha256:{hashed.hexdigest()}" == digests.spelled(hashed.hexdigest())
    assert digests.digits_of(digest) == hashed.hexdigest()
    assert digests.bytes_of(digest) == hashed.digest()


@pytest.mark.parametrize("text", ["", "ab", "sha512:ab", "SHA256:ab", " sha256:ab"])
def test_what_is_no_sha256_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a sha256 digest"):
        digests.digits_of(text)
    with pytest.raises(ValueError, match="not a sha256 digest"):
        digests.bytes_of(text)


def test_nobody_else_spells_a_digest() -> None:
    files = [path for room in ("app", "projections", "workers") for path in (ROOT / room).rglob("*.py")]
    assert [str(path) for path in files if OWN_SPELLING.search(path.read_text())] == []
