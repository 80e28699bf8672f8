"""What somebody has called a secret is known by its name, in every spelling and place; what only sounds alike is let pass."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.vault.names import is_secret, names_a_secret

SECRET = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "api_key", "apikey", "secret_key", "access_key",
    "private_key", "bearer", "auth", "authorization", "credentials", "client_secret", "aws_secret_access_key", "access_token",
    "auth_token", "openai_key", "api_keys", "secrets", "auth_tokens", "passwords", "secret_keys", "jwt",
)  # fmt: skip
PLAIN = (
    "eos_token", "bos_token", "pad_token", "stop_token", "unk_token", "max_tokens", "max_output_tokens", "token_limit",
    "tokenizer", "key", "sort_key", "monkey", "keywords", "auth_type", "password_policy", "author", "base_url", "depth",
    "secretary", "stop_tokens", "thinking_tokens",
)  # fmt: skip
STYLES = (
    lambda words: "_".join(words),
    lambda words: "-".join(words),
    lambda words: ".".join(words),
    lambda words: "_".join(words).upper(),
    lambda words: words[0] + "".join(word.title() for word in words[1:]),
    lambda words: "".join(word.title() for word in words),
)
PLACES = (
    lambda name, value: {name: value},
    lambda name, value: {name: [value]},
    lambda name, value: {name: {"first": [{"of": value}]}},
    lambda name, value: {"deep": [{"er": {name: value}}]},
    lambda name, value: {"env": [f"{name}={value}"]},
    lambda name, value: {"env": f"A=b\nexport {name}={value}"},
    lambda name, value: {"args": [f"--{name}={value}"]},
    lambda name, value: {"args": [f"--{name}", value]},
    lambda name, value: {"headers": [f"{name}: {value}"]},
    lambda name, value: {"env": [{"name": name, "value": value}]},
    lambda name, value: {"text": json.dumps({name: value})},
    lambda name, value: {f"{name}={value}": True},
)
VALUES = st.from_regex(r"[a-z]{1,12}", fullmatch=True).filter(lambda value: not is_secret(value))


def words(name: str) -> list[str]:
    return name.split("_")


@given(
    st.sampled_from(SECRET),
    st.sampled_from(STYLES),
    st.sampled_from(PLACES),
    VALUES,
    st.sampled_from(["", "my_", "db_"]),
)
def test_a_secrets_name_is_known_in_every_style_and_place(
    name: str, style: Any, place: Any, value: str, before: str
) -> None:
    assert names_a_secret(place(style(words(before + name)), value))


@given(st.sampled_from(PLAIN), st.sampled_from(STYLES), st.sampled_from(PLACES), VALUES)
def test_what_only_sounds_alike_passes_in_every_style_and_place(name: str, style: Any, place: Any, value: str) -> None:
    assert not names_a_secret(place(style(words(name)), value))


@pytest.mark.parametrize(
    "settings",
    [
        {"openaiApiKey": "x"},
        {"APIKey": "x"},
        {"OPENAI_API_KEY_2": "x"},
        {"env.OPENAI_API_KEY": "x"},
        {"token": ["abc123"]},
        {"env": ["OPENAI_API_KEY=abcdefgh"]},
        {"url": "http://models.example/v1?api_key=abc"},
        {"password": 1234},
        {"headers": ["Authorization: Bearer abc"]},
    ],
    ids=str,
)
def test_such_settings_name_a_secret(settings: dict[str, Any]) -> None:
    assert names_a_secret(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"eos_token": "</s>"},
        {"max_tokens": "5", "maxTokens": 5, "tokens": 5},
        {"password": "", "secret": [], "token": None, "credentials": {}},
        {"use_auth": True},
        {"prompt": "Tell nobody a secret. A token is a word; the key == the lock."},
        {"args": ["--max-tokens=5", "--verbose"]},
        {"base_url": "http://models.example:8000/v1"},
    ],
    ids=str,
)
def test_such_settings_name_none(settings: dict[str, Any]) -> None:
    assert not names_a_secret(settings)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from(SECRET), VALUES)
def test_whatever_stands_beside_it_hides_it_not(beside: Any, name: str, value: str) -> None:
    assert names_a_secret({"a": beside, "b": [beside, {name: value}]})
