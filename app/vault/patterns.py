"""Shapes of secrets that nobody told us of: keys of known providers, bearer tokens, passwords in URLs, private keys.

A shape lies within one line; group `secret`, if it has one, is the part to mask. Private keys span lines and are found by
their first and last line. A false alarm costs a few characters of a log; a miss costs somebody's key.

An agent writes what is searched here, so no pattern may take more than linear time: what is repeated without a bound is
followed by what it cannot match, or gives nothing back (`++`, `*+`).
"""

import re

import msgspec

_KEYS = (
    r"sk-ant-[A-Za-z0-9_-]{16,}",  # Anthropic
    r"sk-(?:proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{16,}",  # OpenAI, OpenRouter, Langfuse
    r"sk-[A-Za-z0-9]{20,}",  # OpenAI and many that copied it
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"ya29\.[A-Za-z0-9_-]{20,}",  # Google OAuth
    r"gh[pousr]_[A-Za-z0-9]{36,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"glpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"gsk_[A-Za-z0-9]{40,}",  # Groq
    r"xai-[A-Za-z0-9]{40,}",
    r"pplx-[A-Za-z0-9]{40,}",  # Perplexity
    r"r8_[A-Za-z0-9]{37,}",  # Replicate
    r"e2b_[a-f0-9]{40}",
    r"dop_v1_[a-f0-9]{64}",  # DigitalOcean
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-AgE[A-Za-z0-9_-]{50,}",
    r"dckr_pat_[A-Za-z0-9_-]{20,}",  # Docker
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{20,}",  # Stripe
    r"SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}",  # SendGrid
    r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # a JSON web token
    r"sea_[0-7][0-9a-hjkmnp-tv-z]{25}_[0-9A-Za-z]{49}",  # our own (app/access/keys.py)
)
_OPAQUE = r"(?=[a-z._~+/=-]{0,200}[0-9])[a-z0-9._~+/=-]{16,}"  # one digit at least: a name in source code has none


class Shape(msgspec.Struct, frozen=True):
    """One kind of secret. `signs`: where none of them occurs, in small letters, the pattern need not be tried."""

    signs: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


SHAPES = (
    Shape((), re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_KEYS)})".encode())),
    Shape(
        (b"bearer", b"basic"),
        re.compile(rf"(?i)\b(?:bearer|basic)(?:[ \t]|%20|\+)++(?P<secret>{_OPAQUE})".encode()),
    ),
    Shape(
        (b"key", b"token"),
        re.compile(
            rf"""(?i)(?<![a-z0-9])(?:api|access|auth|secret|private)[_-]?(?:key|token)(?![a-z0-9_])"""
            rf"""["'\\]{{0,4}}[ \t]*[:=][ \t]*["'\\]{{0,4}}(?P<secret>{_OPAQUE})""".encode()
        ),
    ),
    Shape(
        (b"://",),
        re.compile(rb"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,200}:(?P<secret>[^\s/@\"'<>]{1,400})@"),
    ),
)
"""None of the patterns can match across the end of a line."""
KEY_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
KEY_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
KEY_BODY = re.compile(
    rb"""(?x) [\s>|#*"'+-]*+
         (?: (?:Proc-Type|DEK-Info|Version|Comment|Hash):\s[^\r\n]*+ | (?:[A-Za-z0-9+/=] | \\++[nr] | \[redacted\])*+ )
         [\s"',;+\\]*+ \Z"""
)
"""What a line between the two may look like, also quoted, prefixed or escaped: when one does not, the key is over."""
KEY_LINES = 400
"""The most lines that a key takes up: after that, what began as one was none."""


def spans(lines: bytes) -> list[tuple[int, int]]:
    """Where secrets lie in whole lines, private keys apart: disjoint, in order."""
    small = lines.lower()
    found: list[tuple[int, int]] = []
    for shape in SHAPES:
        if not shape.signs or any(sign in small for sign in shape.signs):
            group = "secret" if "secret" in shape.pattern.groupindex else 0
            found += (match.span(group) for match in shape.pattern.finditer(lines))
    found.sort()
    return merged(found)


def merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted spans with those that overlap joined. Spans that only touch stay two."""
    joined: list[tuple[int, int]] = []
    for start, end in found:
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
