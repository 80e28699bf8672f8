"""Archives that mean harm, each refused with its own code and the name of the member."""

import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from app.archives.read import extract, scan
from app.archives.refusal import ArchiveRefused, Code, Limits
from tests.archives import samples

PACK = samples.pack_items()


def with_member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"") -> Callable[[], bytes]:
    return lambda: samples.tar([*PACK, (samples.info(name, kind, link=link, size=len(content)), content)])


def with_zip_member(name: str, mode: int = stat.S_IFREG | 0o644, content: bytes = b"x") -> Callable[[], bytes]:
    files = [(path, data, stat.S_IFREG | 0o644) for path, data in samples.PACK.items()]
    return lambda: samples.zipped([*files, (name, content, mode)])


def raw_name(name: bytes) -> bytes:
    """A member whose name the standard library would not write."""
    block = bytearray(samples.tar([samples.file("X" * len(name))])[:512])
    block[: len(name)] = name
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(1024)


CASES: dict[str, tuple[Callable[[], bytes], Code, str | None]] = {
    "symbolic link out": (with_member("x", tarfile.SYMTYPE, "/etc/passwd"), Code.LINK, "x"),
    "symbolic link inside": (with_member("x", tarfile.SYMTYPE, "task.toml"), Code.LINK, "x"),
    "hard link": (with_member("x", tarfile.LNKTYPE, "task.toml"), Code.LINK, "x"),
    "character device": (with_member("x", tarfile.CHRTYPE), Code.SPECIAL_FILE, "x"),
    "block device": (with_member("x", tarfile.BLKTYPE), Code.SPECIAL_FILE, "x"),
    "named pipe": (with_member("x", tarfile.FIFOTYPE), Code.SPECIAL_FILE, "x"),
    "unknown type": (with_member("x", b"Z"), Code.SPECIAL_FILE, "x"),
    "old sparse": (with_member("x", tarfile.GNUTYPE_SPARSE), Code.SPARSE, "x"),
    "absolute": (with_member("/etc/cron.d/x"), Code.ABSOLUTE_PATH, "/etc/cron.d/x"),
    "drive": (with_member("C:/x"), Code.ABSOLUTE_PATH, "C:/x"),
    "parent": (with_member("../x"), Code.PARENT_PATH, "../x"),
    "parent inside": (with_member("a/../../x"), Code.PARENT_PATH, "a/../../x"),
    "dot inside": (with_member("a/./x"), Code.PARENT_PATH, "a/./x"),
    "parent folder": (with_member("a/..", tarfile.DIRTYPE), Code.PARENT_PATH, "a/.."),
    "backslash": (with_member("..\\x"), Code.BAD_NAME, "..\\x"),
    "line feed": (with_member("a\nb"), Code.BAD_NAME, "a�b"),
    "escape": (with_member("a\x1b[31m"), Code.BAD_NAME, "a�[31m"),
    "reading order": (with_member("a\u202egnp.sh"), Code.BAD_NAME, "a�gnp.sh"),
    "decomposed": (with_member("e\u0301"), Code.BAD_NAME, "e\u0301"),
    "empty component": (with_member("a//b"), Code.BAD_NAME, "a//b"),
    "not UTF-8": (lambda: raw_name(b"a\xff"), Code.BAD_NAME, "a�"),
    "twice": (with_member("task.toml"), Code.NAME_COLLISION, "task.toml"),
    "case": (with_member("TASK.toml"), Code.NAME_COLLISION, "TASK.toml"),
    "case of a folder": (with_member("Tests/other"), Code.NAME_COLLISION, "Tests"),
    "sharp s": (
        lambda: samples.tar([*PACK, samples.file("STRASSE"), samples.file("straße")]),
        Code.NAME_COLLISION,
        "straße",
    ),
    "file below a file": (with_member("task.toml/x"), Code.NAME_COLLISION, "task.toml"),
    "file in place of a folder": (with_member("tests"), Code.NAME_COLLISION, "tests"),
    "folder in place of a file": (with_member("task.toml", tarfile.DIRTYPE), Code.NAME_COLLISION, "task.toml"),
    "zip: symbolic link": (with_zip_member("x", stat.S_IFLNK | 0o777, b"/etc/passwd"), Code.LINK, "x"),
    "zip: device": (with_zip_member("x", stat.S_IFCHR | 0o644), Code.SPECIAL_FILE, "x"),
    "zip: absolute": (with_zip_member("/x"), Code.ABSOLUTE_PATH, "/x"),
    "zip: parent": (with_zip_member("../x"), Code.PARENT_PATH, "../x"),
    "zip: case": (with_zip_member("TASK.toml"), Code.NAME_COLLISION, "TASK.toml"),
    "zip: bzip2": (
        lambda: samples.zipped([("task.toml", b"x", 0o100644)], zipfile.ZIP_BZIP2),
        Code.UNSUPPORTED_COMPRESSION,
        "task.toml",
    ),
    "empty file": (lambda: b"", Code.UNKNOWN_FORMAT, None),
    "text": (lambda: b"schema_version = '1.4'\n" * 100, Code.UNKNOWN_FORMAT, None),
    "xz": (lambda: b"\xfd7zXZ\0" + bytes(600), Code.UNKNOWN_FORMAT, None),
    "gzip of text": (lambda: samples.gz(b"hello" * 500), Code.DAMAGED, None),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_its_code_and_member(name: str, tmp_path: Path) -> None:
    make, code, member = CASES[name]
    path = samples.written(tmp_path, make())
    for read in (lambda: scan(path), lambda: extract(path, tmp_path / "out")):
        with pytest.raises(ArchiveRefused) as refused:
            read()
        assert (refused.value.code, refused.value.member) == (code, member)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["archive"]


def test_pax_sparse_is_refused(tmp_path: Path) -> None:
    member = samples.info("x", size=1)
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": "1000000000"}
    with pytest.raises(ArchiveRefused) as refused:
        scan(samples.written(tmp_path, samples.tar([*PACK, (member, b"x")])))
    assert refused.value.code is Code.SPARSE


LIMITS = Limits(members=10, total_bytes=5000, file_bytes=3000, ratio=20, ratio_free_bytes=2000, depth=4, path_bytes=60)
BEYOND: dict[str, tuple[list[samples.Item], Code]] = {
    "members": ([samples.file(f"f{number}") for number in range(11)], Code.TOO_MANY_MEMBERS),
    "members that are folders": (
        [(samples.info(f"d{number}", tarfile.DIRTYPE), b"") for number in range(11)],
        Code.TOO_MANY_MEMBERS,
    ),
    "total": ([samples.file(f"f{number}", b"x" * 2900) for number in range(2)], Code.TOO_LARGE),
    "total of what is left out": ([samples.file(f".git/{number}", b"x" * 2900) for number in range(2)], Code.TOO_LARGE),
    "one file": ([samples.file("f", b"x" * 3001)], Code.FILE_TOO_LARGE),
    "depth": ([samples.file("a/b/c/d/e")], Code.TOO_DEEP),
    "path": ([samples.file("a" * 61)], Code.PATH_TOO_LONG),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_limit_is_held(name: str, tmp_path: Path) -> None:
    items, code = BEYOND[name]
    with pytest.raises(ArchiveRefused) as refused:
        scan(samples.written(tmp_path, samples.tar(items)), LIMITS)
    assert refused.value.code is code


@pytest.mark.parametrize("compress", [samples.gz, samples.zst])
def test_a_bomb_is_stopped_by_its_ratio_before_it_is_unpacked(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    bomb = compress(samples.tar([samples.file("f", bytes(8 * 1024**2))]))
    limits = Limits(ratio=100, ratio_free_bytes=1024**2)
    with pytest.raises(ArchiveRefused) as refused:
        extract(samples.written(tmp_path, bomb), tmp_path / "out", limits)
    assert refused.value.code is Code.RATIO


def test_a_zip_bomb_is_stopped_by_its_ratio(tmp_path: Path) -> None:
    bomb = samples.zipped([("f", bytes(8 * 1024**2), 0o100644)])
    with pytest.raises(ArchiveRefused) as refused:
        scan(samples.written(tmp_path, bomb), Limits(ratio=100, ratio_free_bytes=1024**2))
    assert (refused.value.code, refused.value.member) == (Code.RATIO, "f")


def test_a_zstd_frame_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    # A frame header (RFC 8878, section 3.1.1.1): magic, descriptor 0, window descriptor of 2 GiB, then no block.
    path = samples.written(tmp_path, b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + bytes(64))
    with pytest.raises(ArchiveRefused) as refused:
        scan(path)
    assert refused.value.code is Code.DAMAGED


def test_a_header_that_claims_a_terabyte_costs_nothing(tmp_path: Path) -> None:
    member = samples.info("f", size=1 << 40)
    data = member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    with pytest.raises(ArchiveRefused) as refused:
        scan(samples.written(tmp_path, data))
    assert refused.value.code in (Code.TRUNCATED, Code.TOO_LARGE)


def test_an_extended_header_is_bounded(tmp_path: Path) -> None:
    member = samples.info("pax", tarfile.XHDTYPE, size=1 << 30)
    path = samples.written(tmp_path, member.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with pytest.raises(ArchiveRefused) as refused:
        scan(path)
    assert refused.value.code is Code.DAMAGED


def test_many_records_in_one_extended_header_take_no_longer_than_their_bytes(tmp_path: Path) -> None:
    """A reader that cuts the rest off each time would copy 75 GB here."""
    records = b"6 a=b\n" * 150_000 + b"16 path=renamed\n"
    member = samples.info("pax", tarfile.XHDTYPE, size=len(records))
    header = member.tobuf(tarfile.GNU_FORMAT) + records + bytes(-len(records) % 512)
    path = samples.written(tmp_path, header + samples.tar([samples.file("x")]))
    assert scan(path, marker=None).paths == {"renamed"}


def test_a_directory_of_many_members_takes_no_longer_than_its_bytes(tmp_path: Path) -> None:
    """A reader that cuts the rest off each time would copy 100 GB here."""
    data = samples.zipped(((f"f{number}" + "x" * 60, b"", 0o100644) for number in range(40_000)), zipfile.ZIP_STORED)
    assert len(scan(samples.written(tmp_path, data), marker=None).files) == 40_000


def test_extended_headers_without_end_are_refused(tmp_path: Path) -> None:
    header = samples.info("pax", tarfile.XGLTYPE, size=10).tobuf(tarfile.GNU_FORMAT) + b"10 abc=de\n" + bytes(502)
    with pytest.raises(ArchiveRefused) as refused:
        scan(samples.written(tmp_path, header * 50 + samples.tar(PACK)))
    assert refused.value.code is Code.DAMAGED
    assert scan(samples.written(tmp_path, header * 2 + samples.tar(PACK))).files


@pytest.mark.parametrize("compress", [bytes, samples.gz, samples.zst])
def test_every_cut_of_an_archive_is_noticed(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    whole = compress(samples.tar(PACK))
    for length in range(300, len(whole) - (9000 if compress is bytes else 0), max(1, len(whole) // 120)):
        with pytest.raises(ArchiveRefused) as refused:
            scan(samples.written(tmp_path, whole[:length]))
        assert refused.value.code in (Code.TRUNCATED, Code.DAMAGED), length


@pytest.mark.parametrize("compress", [samples.gz, samples.zst])
def test_every_flipped_byte_of_a_checked_stream_is_noticed(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    whole = compress(samples.tar(PACK))
    expected = scan(samples.written(tmp_path, whole))
    refused = 0
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        try:
            # A few bits mean nothing: gzip's time and system, padding between blocks.
            assert scan(samples.written(tmp_path, bytes(damaged))) == expected, place
        except ArchiveRefused:
            refused += 1
    assert refused > 0.9 * len(whole) / 3


def test_nothing_hides_behind_the_end(tmp_path: Path) -> None:
    whole = samples.tar(PACK)
    hidden = whole + samples.tar([samples.file("hidden", b"x")])
    for data in (hidden, samples.gz(hidden), samples.gz(whole) + samples.gz(b"hidden"), samples.zst(hidden)):
        with pytest.raises(ArchiveRefused) as refused:
            scan(samples.written(tmp_path, data))
        assert refused.value.code is Code.TRAILING_DATA
    scan(samples.written(tmp_path, whole + bytes(100_000)))


def test_a_wrong_checksum_is_noticed(tmp_path: Path) -> None:
    data = bytearray(samples.tar(PACK))
    data[0] ^= 1
    with pytest.raises(ArchiveRefused) as refused:
        scan(samples.written(tmp_path, bytes(data)))
    assert refused.value.code is Code.DAMAGED


class TestZipThatSaysTwoThings:
    """Each archive is read in one way by some tools and in another by others."""

    def refuse(self, data: bytes, tmp_path: Path) -> Code:
        with pytest.raises(ArchiveRefused) as refused:
            extract(samples.written(tmp_path, data), tmp_path / "out")
        return refused.value.code

    def test_names_differ(self, tmp_path: Path) -> None:
        data = samples.pack_zip()
        assert self.refuse(data.replace(b"task.toml", b"TASK.toml", 1), tmp_path) is Code.INCONSISTENT

    def test_sizes_differ(self, tmp_path: Path) -> None:
        data = bytearray(samples.pack_zip())
        data[22:26] = struct.pack("<L", 1)
        assert self.refuse(bytes(data), tmp_path) is Code.INCONSISTENT

    def test_the_content_is_longer_than_stated(self, tmp_path: Path) -> None:
        data = bytearray(samples.pack_zip())
        central = data.index(b"PK\x01\x02")
        for place in (22, central + 24):
            data[place : place + 4] = struct.pack("<L", 1)
        assert self.refuse(bytes(data), tmp_path) is Code.INCONSISTENT

    def test_the_crc_is_wrong(self, tmp_path: Path) -> None:
        data = bytearray(samples.pack_zip())
        central = data.index(b"PK\x01\x02")
        for place in (14, central + 16):
            data[place] ^= 1
        assert self.refuse(bytes(data), tmp_path) is Code.DAMAGED

    def test_two_members_share_their_content(self, tmp_path: Path) -> None:
        """The overlap trick of zip bombs: many entries of the directory, one local file."""
        data = samples.zipped([("task.toml", b"x", 0o100644)])
        central, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
        entry = data[central:end]
        record = bytearray(data[end:])
        record[8:12] = struct.pack("<HH", 2, 2)
        record[12:16] = struct.pack("<L", 2 * len(entry))
        assert self.refuse(data[:central] + entry + entry + bytes(record), tmp_path) is Code.INCONSISTENT

    def test_something_stands_before_the_first_member(self, tmp_path: Path) -> None:
        data = samples.pack_zip()
        assert self.refuse(b"PK\x03\x04" + b"#!/bin/sh\n" + data, tmp_path) is Code.INCONSISTENT

    def test_something_stands_after_the_end(self, tmp_path: Path) -> None:
        assert self.refuse(samples.pack_zip() + b"x", tmp_path) is Code.TRUNCATED

    def test_the_count_is_wrong(self, tmp_path: Path) -> None:
        data = bytearray(samples.pack_zip())
        end = data.index(b"PK\x05\x06")
        data[end + 8 : end + 12] = struct.pack("<HH", 9, 9)
        assert self.refuse(bytes(data), tmp_path) is Code.INCONSISTENT

    def test_it_is_encrypted(self, tmp_path: Path) -> None:
        data = bytearray(samples.pack_zip())
        central = data.index(b"PK\x01\x02")
        data[6] |= 1
        data[central + 8] |= 1
        assert self.refuse(bytes(data), tmp_path) is Code.ENCRYPTED

    def test_deflate_is_followed_by_something(self, tmp_path: Path) -> None:
        engine = zlib.compressobj(wbits=-15)
        packed = engine.compress(b"x") + engine.flush() + b"hidden"
        out = io.BytesIO()
        crc = zlib.crc32(b"x")
        name = b"task.toml"
        out.write(
            struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 0, crc, len(packed), 1, len(name), 0) + name + packed
        )
        at = out.tell()
        fields = (b"PK\x01\x02", 0x314, 20, 0, 8, 0, 0, crc, len(packed), 1, len(name), 0, 0, 0, 0, 0o100644 << 16, 0)
        out.write(struct.pack("<4s6H3L5H2L", *fields) + name)
        out.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, out.tell() - at, at, 0))
        assert self.refuse(out.getvalue(), tmp_path) is Code.TRAILING_DATA


def test_a_real_zip64_is_read(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        with archive.open(zipfile.ZipInfo("task.toml"), "w", force_zip64=True) as member:
            member.write(b"x")
    assert scan(samples.written(tmp_path, out.getvalue())).files[0].size == 1
