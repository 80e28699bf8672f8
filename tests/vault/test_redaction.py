"""Nothing secret gets through, nothing else is changed, and it does not matter where the chunks are cut."""

import base64
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.parse

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app import ids
from app.access.keys import mint
from app.vault import MASK, NOTHING, Redactor, Secrets
from app.vault.forms import SHORTEST, forms
from app.vault.patterns import KEY_LINES

# No brackets: a value that the mask itself can be a part of is not what is looked at here.
LETTERS = st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="[]\n\r")
VALUES = st.text(LETTERS, min_size=8, max_size=60).filter(lambda text: len(text.strip()) >= 8)
AROUND = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="[]"), max_size=40)
KEY = "sk-ant-api03-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"


def in_pieces(secrets: Secrets, data: bytes, cuts: list[int]) -> bytes:
    redactor = Redactor(secrets)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    written = [redactor.feed(data[start:end]) for start, end in itertools.pairwise(places)]
    return b"".join([*written, redactor.flush()])


@given(VALUES, AROUND, AROUND, st.data())
def test_a_value_is_masked_in_every_form(value: str, before: str, after: str, data: st.DataObject) -> None:
    secrets = Secrets([value])
    form = data.draw(st.sampled_from(sorted(forms(value))))
    masked = secrets.mask(before.encode() + form + after.encode())
    assert MASK in masked
    assert not [needle for needle in secrets.needles if needle in masked]


@given(VALUES, st.binary(max_size=20), st.binary(max_size=20), st.booleans())
def test_a_value_is_masked_in_base64_of_more_than_itself(
    value: str, before: bytes, after: bytes, urlsafe: bool
) -> None:
    raw = value.encode()
    encoded = (base64.urlsafe_b64encode if urlsafe else base64.b64encode)(before + raw + after)
    start, end = len(before) * 8, (len(before) + len(raw)) * 8
    alone = encoded[-(-start // 6) : end // 6]  # the characters in which only the value has a part
    assert alone in encoded
    masked = Secrets([value]).mask(encoded)
    assert alone not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "write",
    [
        lambda value: value,
        lambda value: value.encode().hex(),
        lambda value: value.encode().hex().upper(),
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
        lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
        urllib.parse.quote,
        urllib.parse.quote_plus,
        lambda value: urllib.parse.urlencode({"key": value}),
        lambda value: urllib.parse.urlencode({"key": value}).lower() if value.lower() == value else urllib.parse.quote(value, safe=""),
        json.dumps,
        lambda value: json.dumps({"key": value}, ensure_ascii=False),
        lambda value: json.dumps(json.dumps({"key": value})),
        lambda value: json.dumps({"log": json.dumps({"key": value})}, ensure_ascii=False),
        lambda value: f"export KEY={shlex.quote(value)}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", ["pass/word+wörd=1", "a\"b\\c'd e&f<g>", "sesame open", "日本語の鍵です", "tab\there\x7f"]
)
def test_a_value_is_masked_as_programs_write_it(write: "type[str]", value: str) -> None:
    written = write(value)
    masked = Secrets([value]).mask_text(f"before {written} after")
    assert "[redacted]" in masked
    assert written not in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")


@given(
    st.lists(VALUES, min_size=1, max_size=3),
    st.lists(AROUND, min_size=1, max_size=5),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.data(),
)
@settings(max_examples=200)
def test_the_cut_of_chunks_changes_nothing(
    values: list[str], around: list[str], cuts: list[int], data: st.DataObject
) -> None:
    secrets = Secrets(values)
    parts: list[bytes] = []
    for text in around:
        parts.append(text.encode())
        form = data.draw(st.sampled_from(secrets.needles))
        parts.append(form[: data.draw(st.integers(0, len(form)))] if data.draw(st.booleans()) else form)
    whole = b"".join(parts)
    assert in_pieces(secrets, whole, cuts) == secrets.mask(whole)


@given(
    st.lists(st.text("ab", min_size=SHORTEST, max_size=9), min_size=1, max_size=4),
    st.text("abc\n", max_size=80),
    st.lists(st.integers(0, 80), max_size=20),
)
@settings(max_examples=300)
def test_values_that_overlap_leave_nothing_of_each_other(values: list[str], text: str, cuts: list[int]) -> None:
    secrets = Secrets(values)
    data = text.encode()
    covered = [
        any(
            data.startswith(needle, start)
            for needle in secrets.needles
            for start in range(max(0, at - len(needle) + 1), at + 1)
        )
        for at in range(len(data))
    ]
    kept = bytes(byte for byte, hidden in zip(data, covered, strict=True) if not hidden)
    assert in_pieces(secrets, data, cuts).replace(MASK, b"") == kept


@given(st.lists(VALUES, max_size=3), st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_what_holds_no_secret_is_left_as_it_is(values: list[str], data: bytes, cuts: list[int]) -> None:
    secrets = Secrets(values)
    assume(not any(needle in data for needle in secrets.needles))
    assume(b"://" not in data)
    assert in_pieces(secrets, data, cuts) == data


def test_a_value_that_repeats_without_end_is_not_held_back_without_end() -> None:
    redactor = Redactor(Secrets(["aaaaaaaa"]))
    written = [redactor.feed(b"a" * 1000) for _ in range(200)] + [redactor.feed(b"\n"), redactor.flush()]
    assert b"".join(written) == MASK + b"\n"


def test_a_line_that_cannot_be_part_of_a_value_is_written_at_once() -> None:
    redactor = Redactor(Secrets(["correct horse battery staple"]))
    assert redactor.feed(b"step 1 done\nstep 2") == b"step 1 done\n"
    assert redactor.feed(b" done\n") == b"step 2 done\n"
    assert redactor.feed(b"50%\r") == b"50%\r"
    assert redactor.feed(b"correct horse ") == b""
    assert redactor.feed(b"battery staple\n") == MASK + b"\n"


def test_short_values_are_not_looked_for() -> None:
    assert Secrets(["", "a", "12345"]).mask(b"a 12345") == b"a 12345"
    assert Secrets(["", "123456"]).mask(b"a 123456") == b"a " + MASK


def test_a_value_with_line_ends_is_found_line_by_line() -> None:
    value = "first line of the secret\nsecond line of the secret\nend\n"
    secrets = Secrets([value])
    assert secrets.mask(value.encode()) == MASK
    assert secrets.mask(value.replace("\n", "\r\n").encode()) == MASK + b"\r\n"
    indented = "".join(f"    {line}\n" for line in value.splitlines())
    assert secrets.mask(indented.encode()) == b"    [redacted]\n    [redacted]\n    end\n"


def test_secrets_do_not_print_themselves() -> None:
    assert "sesame" not in f"{Secrets(['sesame-open'])!r} {Secrets(['sesame-open'])}"


def test_text_that_is_not_unicode_comes_back() -> None:
    broken = b"\xff\xfe sesame-open".decode(errors="surrogateescape")
    assert Secrets(["sesame-open"]).mask_text(broken) == b"\xff\xfe [redacted]".decode(errors="surrogateescape")


@pytest.mark.parametrize(
    "secret",
    [
        KEY,
        "sk-proj-abcDEF123456_-abcDEF123456",
        "sk-or-v1-0123456789abcdef0123456789abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "github_pat_11ABCDEFG0123456789abcdef",
        "glpat-0123456789abcdefghij",
        "xoxb-123456789012-abcdefABCDEF",
        "hf_abcdefghijABCDEFGHIJabcdefghijABCD",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        pytest.param(mint(ids.new("key"), os.urandom(32)).token, id="our own"),
    ],
)
@pytest.mark.parametrize("line", ["{}", "key={}", '"{}"', "export KEY='{}';", "(see {})", "x-api-key:{}\n", "a\t{}\tb"])
def test_keys_of_known_shape_are_masked(secret: str, line: str) -> None:
    assert NOTHING.mask_text(line.format(secret)) == line.format("[redacted]")


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("Authorization: Bearer abcdef0123456789abcdef", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNzd29yZDEyMw==", "authorization: basic [redacted]"),
        ("curl -H 'Authorization: Bearer abcdef0123456789abcdef' x", "curl -H 'Authorization: Bearer [redacted]' x"),
        ("OPENAI_API_KEY=0123456789abcdef0123", "OPENAI_API_KEY=[redacted]"),
        ('{"api_key": "0123456789abcdef0123", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        (r"{\"access-token\": \"0123456789abcdef0123\"}", r"{\"access-token\": \"[redacted]\"}"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = [redacted]"),
        ("postgres://app:s3cr3t@db:5432/x?y=1", "postgres://app:[redacted]@db:5432/x?y=1"),
        ("https://oauth2:abc@github.com/a/b and x@y", "https://oauth2:[redacted]@github.com/a/b and x@y"),
        ("redis://:hunter2@cache", "redis://:[redacted]@cache"),
    ],
)
def test_a_secret_is_masked_by_what_stands_before_it(line: str, masked: str) -> None:
    assert NOTHING.mask_text(line) == masked
    assert NOTHING.mask_text(masked) == masked


@pytest.mark.parametrize(
    "line",
    [
        "the task-sk-learn package and desk-ant-colony",
        "api_key = settings.provider_credentials_file",
        "token: required, key: value, bearer of the ring-and-the-crown",
        "https://example.org:8080/path@2x.png and user@example.org",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "evl_01kbdcmn6mezqrhn0r4jv2k3xs trl_01kbdcmn6mezqrhn0r4jv2k3xs",
        "-----BEGIN PUBLIC KEY-----",
        "Basic understanding of authentication",
    ],
)
def test_innocent_lines_are_left_alone(line: str) -> None:
    assert NOTHING.mask_text(line) == line


def private_keys() -> list[str]:
    pem, openssh = serialization.PrivateFormat.TraditionalOpenSSL, serialization.PrivateFormat.OpenSSH
    plain = serialization.NoEncryption()
    keys = [
        rsa.generate_private_key(65537, 2048).private_bytes(serialization.Encoding.PEM, pem, plain),
        rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM, pem, serialization.BestAvailableEncryption(b"x")
        ),
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
        ),
        ed25519.Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, openssh, plain),
    ]
    return [key.decode() for key in keys]


@pytest.mark.parametrize("key", private_keys(), ids=["rsa", "encrypted", "ec", "openssh"])
@pytest.mark.parametrize(
    "write",
    [
        lambda key: key,
        lambda key: key.replace("\n", "\r\n"),
        lambda key: "".join(f"    | {line}\n" for line in key.splitlines()),
        json.dumps,
        lambda key: json.dumps({"private_key": key, "client_id": 1}),
        lambda key: json.dumps(json.dumps(key)),
        lambda key: key.replace("\n", " "),
        lambda key: f"KEY='{key.strip()}'",
    ],
    ids=["plain", "crlf", "indented", "json", "in json", "json in json", "one line", "quoted"],
)
def test_a_private_key_is_masked_wherever_it_stands(key: str, write: "type[str]") -> None:
    body = [line for line in key.splitlines() if not line.startswith("-----") and ": " not in line and line]
    data = f"before\n{write(key)}\nafter\n".encode()
    masked = NOTHING.mask(data)
    assert not [line for line in body if line.encode() in masked]
    assert masked.startswith(b"before\n")
    assert masked.endswith(b"\nafter\n")
    assert masked.count(MASK) == 1
    for size in (1, 7, 64, 1000):
        assert in_pieces(NOTHING, data, list(range(0, len(data), size))) == masked


def test_the_mere_mention_of_a_private_key_hides_no_more_than_itself() -> None:
    text = "It starts with -----BEGIN PRIVATE KEY----- as everybody knows.\nThe next line, too, is prose.\n"
    assert NOTHING.mask_text(text) == "It starts with [redacted] as everybody knows.\nThe next line, too, is prose.\n"
    endless = "-----BEGIN PRIVATE KEY-----\n" + "word\n" * 1000
    assert NOTHING.mask_text(endless).count("word\n") > 1000 - KEY_LINES


@given(
    st.lists(
        st.sampled_from(
            [
                KEY,
                " ",
                "\n",
                "\r",
                "word",
                "-----BEGIN PRIVATE KEY-----",
                "-----END PRIVATE KEY-----",
                "MIIEvQIBADAN",
                "Bearer ",
            ]
        ),
        max_size=30,
    ),
    st.lists(st.integers(0, 1500), max_size=12),
)
@settings(max_examples=200)
def test_the_cut_of_chunks_changes_nothing_for_shapes(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode()
    assert in_pieces(NOTHING, data, cuts) == NOTHING.mask(data)


@pytest.mark.parametrize("place", [0, 65_500, 65_530, 65_536, 131_000, 150_000])
def test_a_line_of_any_length_is_written_and_masked(place: int) -> None:
    line = ("word " * 40_000).encode()
    data = line[:place] + b" " + KEY.encode() + b" " + line[place:]
    expected = line[:place] + b" " + MASK + b" " + line[place:]
    for size in (1000, 65_536, 70_000, len(data)):
        assert in_pieces(NOTHING, data, list(range(0, len(data), size))) == expected
    redactor = Redactor(NOTHING)
    written = sum(len(redactor.feed(b"x" * 1000)) for _ in range(200))
    assert written >= 200_000 - 65_536, "no line is held back without end"


def test_a_subprocess_that_prints_its_environment_tells_nothing() -> None:
    """The real thing: what an agent's shell shows of a key that it was given."""
    key = "kxl" + os.urandom(20).hex()
    script = "env; env | base64 -w0; echo; printenv KEY | od -An -tx1 -v | tr -d ' \\n'; echo; python3 -c 'import os; print(os.environ)'"
    environment = {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}", "KEY": key, "MODE": "test"}
    shown = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, check=True).stdout
    masked = Secrets([key]).mask(shown)
    assert masked.count(MASK) == 4
    assert b"MODE=test" in masked
    for window in (key.encode(), key.encode().hex().encode(), base64.b64encode(key.encode())[3:40]):
        assert window not in masked


MARKERS = st.sampled_from(
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----END RSA PRIVATE KEY-----",
        "MIIEvQIBADANBg",
        "\n",
        "prose, and more",
        " ",
        "+",
    ]
)


@given(st.lists(MARKERS, max_size=12), st.lists(st.integers(0, 400), max_size=3))
def test_keys_that_begin_and_end_anywhere_leave_no_line_of_theirs(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts).encode()
    masked = NOTHING.mask(text)
    assert in_pieces(NOTHING, text, cuts) == masked
    assert b"BEGIN PRIVATE KEY" not in masked
    assert (MASK in masked) == (b"-----BEGIN PRIVATE KEY-----" in text)
    whole = re.sub(
        rb"(?s)-----BEGIN PRIVATE KEY-----(?:MIIEvQIBADANBg|[\n +])*-----END RSA PRIVATE KEY-----", b"", text
    )
    assert masked.count(b"MIIEvQIBADANBg") <= whole.count(b"MIIEvQIBADANBg")


@pytest.mark.parametrize(
    "hostile",
    [
        b"-----BEGIN PRIVATE KEY-----" * 40_000,
        b"-----BEGIN PRIVATE KEY----------END PRIVATE KEY-----" * 20_000,
        b"-----BEGIN PRIVATE KEY-----\n" + b"+" * 500_000 + b"!",
        b"-----BEGIN PRIVATE KEY-----\n" + b"\\" * 500_000 + b"!",
        b"bearer" + b"+" * 500_000,
        b"bearer+" * 70_000,
        b"api_key=" * 60_000,
        b"-eyJaaaaaaaa" * 40_000,
        b"aa://a:b" * 60_000,
        b"a." * 200_000,
    ],
    ids=lambda hostile: hostile[:20].decode(),
)
def test_no_output_of_an_agent_takes_more_than_linear_time(hostile: bytes) -> None:
    """Each of these took the recursion's end, minutes or weeks; the suite's own time limit is what would notice."""
    assert NOTHING.mask(hostile + b"\n").endswith((b"\n", MASK))
