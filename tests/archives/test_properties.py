"""What holds for any tree and any bytes."""

import contextlib
import io
import tempfile
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.archives import names
from app.archives.listing import FileEntry, pack_digest
from app.archives.read import extract, scan
from app.archives.refusal import DEFAULT, ArchiveRefused
from app.archives.stream import Stream
from app.archives.tar import TarReader
from app.archives.write import TarWriter
from tests.archives import samples

component = st.text(
    st.characters(codec="utf-8", exclude_characters="/\\", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20
)
paths = st.lists(component, min_size=1, max_size=4).map("/".join)


def clean(path: str) -> str:
    return names.clean(path, DEFAULT)


trees = st.dictionaries(paths, st.tuples(st.binary(max_size=2000), st.booleans()), max_size=8)


@settings(max_examples=60, deadline=None)
@given(trees)
def test_what_is_written_is_read_back(tree: dict[str, tuple[bytes, bool]]) -> None:
    out = io.BytesIO()
    writer = TarWriter(out)
    for path, (content, executable) in tree.items():
        writer.file(path, len(content), [content], executable=executable)
    writer.close()
    with tempfile.TemporaryDirectory() as folder:
        archive = samples.written(Path(folder), out.getvalue())
        try:
            found = extract(archive, Path(folder) / "out", marker=None)
        except ArchiveRefused:
            assume(False)
            return
        kept = {clean(path): value for path, value in tree.items() if not names.is_left_out(path)}
        assert found.paths == kept.keys()
        for entry in found.files:
            content, executable = kept[entry.path]
            file = Path(folder) / "out" / entry.path
            assert file.read_bytes() == content
            assert (entry.mode == 0o755) == executable == bool(file.stat().st_mode & 0o100)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=3000), st.sampled_from([b"", b"PK\x03\x04", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd"]))
def test_no_bytes_crash_a_reader(data: bytes, magic: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(ArchiveRefused):
            scan(samples.written(Path(folder), magic + data), marker=None)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damage_crashes_a_reader(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([samples.tar(samples.pack_items()), samples.pack_zip()])))
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = extract(samples.written(Path(folder), bytes(whole)), Path(folder) / "out", marker=None)
        except ArchiveRefused:
            return
        inside = {
            str(path.relative_to(Path(folder) / "out")) for path in (Path(folder) / "out").rglob("*") if path.is_file()
        }
        assert inside == found.paths


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_a_clean_name_stays_inside_and_is_clean(name: str) -> None:
    try:
        path = names.clean(name, DEFAULT)
    except ArchiveRefused:
        return
    assert names.clean(path, DEFAULT) == path
    assert not path.startswith("/")
    assert ".." not in path.split("/")
    assert "\0" not in path


@given(
    st.lists(
        st.builds(
            FileEntry, paths, st.sampled_from([0o644, 0o755]), st.integers(0, 9), st.sampled_from(["a" * 64, "b" * 64])
        ),
        unique_by=lambda entry: entry.path,
        max_size=6,
    ),
    st.randoms(),
)
def test_the_digest_knows_no_order(entries: list[FileEntry], random: object) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert pack_digest(entries) == pack_digest(shuffled)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=40))
def test_the_pieces_of_a_stream_do_not_matter_to_a_reader(pieces: list[int]) -> None:
    data = samples.tar(samples.pack_items())

    def chunks():
        at, turn = 0, 0
        while at < len(data):
            step = pieces[turn % len(pieces)]
            yield data[at : at + step]
            at, turn = at + step, turn + 1

    reader = TarReader(Stream(chunks()))
    assert {member.name: b"".join(reader.data()) for member in reader} == samples.PACK
