"""What a Dockerfile builds on, also when it tries to hide it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.images.dockerfile import DockerfileUnreadable, Stage, read, syntax, without_syntax


def test_stages_images_workdir_and_user() -> None:
    found = read(
        """\
ARG BASE=debian:bookworm
FROM --platform=linux/amd64 ${BASE} AS Build
WORKDIR /src
USER builder
FROM build
COPY --from=busybox:1 /bin/sh /sh
RUN --mount=type=bind,from=alpine:3,target=/x --mount=type=cache,target=/c ls
WORKDIR /app
"""
    )
    assert found.images == ("alpine:3", "busybox:1", "debian:bookworm")
    assert found.stages == (
        Stage("debian:bookworm", None, "Build", 2, "linux/amd64", "/src", "builder"),
        Stage("build", 0, None, 5, None, "/app", "builder"),
    )


def test_stages_are_no_images() -> None:
    found = read(
        "FROM scratch AS a\nFROM debian AS b\nCOPY --from=a x y\nCOPY --from=0 x y\nRUN --mount=from=b x\nFROM B\n"
    )
    assert found.images == ("debian",)
    assert [stage.base_stage for stage in found.stages] == [None, None, 1]


@pytest.mark.parametrize(
    "text",
    [
        "FROM debian\nRUN <<EOF\nFROM evil\nEOF\n",
        "FROM debian\nRUN echo \\\nFROM evil\n",
        "FROM debian\n# FROM evil\n",
        "FROM debian\nCOPY <<X /f\nCOPY --from=evil a b\nX\n",
        "# escape=`\nFROM debian\nRUN echo `\nFROM evil\n",
    ],
)
def test_what_only_looks_like_an_instruction_is_none(text: str) -> None:
    assert read(text).images == ("debian",)


def test_what_add_fetches_from_elsewhere_is_told() -> None:
    found = read(
        "FROM a\nADD https://x.example/y /y\nADD local.tar /z\nADD git@x.example:a/b.git /b\nADD a.git /c\nADD $U /d\n"
        'ADD ["http://x.example/1", "two", "/e"]\nADD <<E /f\nhttps://no.example\nE\n'
    )
    assert found.remotes == (
        "https://x.example/y",
        "git@x.example:a/b.git",
        "a.git",
        "$U",
        "http://x.example/1",
    )


@pytest.mark.parametrize(
    ("line", "base"),
    [
        ("ARG V=12\nFROM debian:$V", "debian:12"),
        ("ARG V\nFROM debian:${V:-11}", "debian:11"),
        ("ARG V=1\nFROM debian${V:+:12}", "debian:12"),
        ("ARG A=12\nARG V=${A}\nFROM debian:${V}", "debian:12"),
        ('ARG V="12"\nFROM debian:${V}', "debian:12"),
    ],
)
def test_arguments_are_filled_in_by_their_defaults(line: str, base: str) -> None:
    assert read(line + "\n").images == (base,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "RUN x\n",
        "FROM\n",
        "FROM a b\n",
        "FROM a AS\n",
        "FROM a\nHELLO x\n",
        "FROM a\nRUN <<EOF\n",
        "FROM ${NOTHING}\n",
        "FROM a\n\0",
    ],
)
def test_what_cannot_be_built_is_unreadable(text: str) -> None:
    with pytest.raises(DockerfileUnreadable):
        read(text)


def test_the_syntax_line_goes_and_everything_else_stays_in_its_line() -> None:
    text = "#Syntax = docker/dockerfile:1\n# escape=`\nFROM debian\nRUN echo `\n hello\n"
    assert syntax(text) == "docker/dockerfile:1"
    without = without_syntax(text)
    assert syntax(without) is None
    assert len(without.split("\n")) == len(text.split("\n"))
    assert read(without).stages == read(text).stages
    assert read(without).stages[0].line == 3


@pytest.mark.parametrize(
    "text",
    ["FROM a\n# syntax=x\n", "# hello\n# syntax=x\nFROM a\n", "\n# syntax=x\nFROM a\n", "RUN echo '# syntax=x'\n"],
)
def test_a_syntax_line_counts_only_at_the_top(text: str) -> None:
    assert syntax(text) is None
    assert without_syntax(text) == text


@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(["FROM a", "# syntax=b", "# escape=`", "RUN x \\", "COPY <<E f", "E", "ARG A=$A", ""]),
        max_size=8,
    ).map("\n".join)
)
def test_any_text_is_read_or_unreadable(text: str) -> None:
    assert len(without_syntax(text).split("\n")) == len(text.split("\n"))
    assert syntax(without_syntax(text)) is None
    try:
        read(text)
    except DockerfileUnreadable:
        return
