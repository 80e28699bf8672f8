"""Whether data names a secret: by what its parts are called, whatever they hold.

For what people write of their own will into what everybody may read (an agent's settings). `patterns` knows secrets by their
looks; a password has none, but somebody has called it one. Of two mistakes the harmless one is made: a refusal.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any, cast

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""Of a name in any style: openaiApiKey, OPENAI_API_KEY, env.openai-api-key. Digits part words: API_KEY_2."""
_ALONE = frozenset({"auth", "bearer", "jwt", "pat", "pwd"})
_ENDS = re.compile(r"(?:passw(?:or)?d|passphrase|passcode|secret|credential|authori[sz]ation)s?$")
"""Of a word, alone or written together with others (dbpassword)."""
_KEY = re.compile(r"(?:api|access|account|auth|encryption|private|secret|signing|ssh|subscription)(?:key|token)s?$")
"""Of the last two words, or of one that is written together."""
_PROVIDERS = frozenset({"anthropic", "aws", "azure", "gemini", "google", "groq", "mistral", "openai", "openrouter"})
_MARKS = frozenset(
    {"begin", "bos", "cls", "end", "eos", "image", "mask", "pad", "sep", "special", "start", "stop", "unk"}
)
"""What a model's tokens are called: eos_token."""
_COUNTS = frozenset({"budget", "completion", "context", "input", "max", "min", "new", "num", "output", "prompt", "reasoning",
                     "thinking", "total"})  # fmt: skip
"""What is counted in tokens: max_output_tokens."""
_ASSIGNED = re.compile(
    r"""(?x) (?<![\w.-]) -{0,2} (?P<name>[A-Za-z_][\w.-]*)
        (?: =(?!=)["']? | (?<=\w)["']:[ \t]{0,9}["'] ) (?=[^\s"'&;,])"""
)
"""NAME=value, --name=value, and "name": "value" within a text."""
_HEADER = re.compile(r"\s{0,9}(?P<name>[A-Za-z_][\w.-]*):[ \t]{0,9}(?=\S)[^\r\n]*$")
"""A text that is one line of `Name: value`."""
_NAMED = (("name", "value"), ("key", "value"))
"""How lists of variables spell a pair."""


def is_secret(name: str) -> bool:
    """Whether what has this name is a secret. (`max_tokens`, `eos_token`, `sort_key` and `auth_type` are none.)"""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    last, before = words[-1], words[:-1]
    if last in _ALONE or _ENDS.search(last) or _KEY.search("".join(words[-2:])):
        return True
    if last in ("key", "keys"):
        return bool(before) and before[-1] in _PROVIDERS
    if last in ("token", "tokens"):
        return not any(word in _MARKS or word in _COUNTS for word in before)
    return False


def names_a_secret(value: Any) -> bool:
    """Whether something in JSON has a secret's name: a text or a number, also deep in what has the name, or in a text."""
    if isinstance(value, str):
        return _in_text(value)
    if isinstance(value, list):
        items = cast(list[Any], value)
        return any(map(names_a_secret, items)) or _has_flag(items)
    if not isinstance(value, dict):
        return False
    pairs = cast(dict[str, Any], value)
    named = [
        *pairs.items(),
        *((pairs[name], pairs.get(held)) for name, held in _NAMED if isinstance(pairs.get(name), str)),
    ]
    if any(is_secret(name) and _says_something(name, one) for name, one in named):
        return True
    return any(_in_text(name) or names_a_secret(one) for name, one in pairs.items())


def _says_something(name: str, value: Any) -> bool:
    """Whether there is anything that could be the secret: a switch is none, and a number of `tokens` is a number."""
    counted = _WORD.findall(name)[-1].lower() == "tokens"
    return any(
        (isinstance(leaf, str) and leaf != "")
        or (isinstance(leaf, int | float) and not isinstance(leaf, bool) and not counted)
        for leaf in _leaves(value)
    )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in cast(list[Any], value):
            yield from _leaves(one)
    elif isinstance(value, dict):
        for one in cast(dict[str, Any], value).values():
            yield from _leaves(one)
    else:
        yield value


def _in_text(text: str) -> bool:
    header = _HEADER.match(text)
    return any(is_secret(found["name"]) for found in (*_ASSIGNED.finditer(text), *([header] if header else [])))


def _has_flag(items: list[Any]) -> bool:
    """["--api-key", "value"]"""
    return any(
        isinstance(flag, str) and flag.startswith("-") and is_secret(flag) and isinstance(one, str) and one != ""
        for flag, one in itertools.pairwise(items)
    )
