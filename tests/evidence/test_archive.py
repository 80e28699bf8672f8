"""An evidence archive: the same bytes from whoever seals it, and nothing in it can be changed unnoticed."""

import asyncio
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.archives import names, zstd
from app.archives.write import TarWriter
from app.evidence import manifest, provenance
from app.evidence.archive import LIMITS, EvidenceFile, SourceChanged, build_archive, execution_path
from app.evidence.check import Code, Report, check
from tests.evidence import samples

ROOT = Path(__file__).parents[2]
Members = list[tuple[str, bytes]]


@pytest.fixture
async def archive(tmp_path: Path) -> Path:
    path = tmp_path / "evidence.tar.zst"
    await build_archive(path, samples.inputs())
    return path


def members(path: Path) -> Members:
    data = zstd.decompressor().decompress(path.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


def rewritten(path: Path, changed: Members) -> Report:
    with path.open("wb") as out:
        writer = TarWriter(out)
        for name, content in changed:
            writer.file(name, len(content), [content])
        writer.close()
    return check(path)


def codes(report: Report) -> dict[str, Code]:
    assert report.ok == (not report.problems)
    return {problem.path: problem.code for problem in report.problems}


async def test_a_sealed_archive_checks_and_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "evidence.tar.zst"
    sealed = await build_archive(path, samples.inputs())
    report = check(path)
    assert report.ok, report.problems
    assert (report.sha256, report.size, report.files) == (sealed.sha256, sealed.size, sealed.files)
    assert report.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sealed.size == path.stat().st_size
    by_name = dict(members(path))
    assert hashlib.sha256(by_name["manifest.json"]).hexdigest() == sealed.manifest_sha256
    assert hashlib.sha256(by_name["provenance.json"]).hexdigest() == sealed.provenance_sha256
    assert hashlib.sha256(by_name["sbom.cdx.json"]).hexdigest() == sealed.sbom_sha256
    assert {name: by_name[name] for name in samples.CONTENTS} == samples.CONTENTS
    assert by_name["events.jsonl"] == samples.EVENTS
    assert {"README.md", "statement/README.md", "proofs/README.md"} <= by_name.keys()
    assert report.provenance is not None
    assert msgspec.structs.replace(report.provenance, subject=()) == samples.PROVENANCE
    assert {subject.name for subject in report.provenance.subject} == {
        *samples.CONTENTS,
        "sbom.cdx.json",
        "events.jsonl",
    }


async def test_the_manifest_is_first_and_the_rest_is_in_its_order(archive: Path) -> None:
    names_in_order = [name for name, _ in members(archive)]
    listed = manifest.decode(members(archive)[0][1])
    assert names_in_order == ["manifest.json", *(file.path for file in listed.files)]
    assert [file.path for file in listed.files] == sorted(file.path for file in listed.files)
    assert {file.media_type for file in listed.files if file.path.endswith(".cdx.json")} == {
        "application/vnd.cyclonedx+json"
    }


async def test_any_tar_reads_it(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", tmp_path / "out"], check=True)
    for path, content in samples.CONTENTS.items():
        assert (tmp_path / "out" / path).read_bytes() == content


def test_two_attesters_give_equal_bytes_whatever_the_order_and_the_pieces(tmp_path: Path) -> None:
    digests: set[str] = set()
    for seed, order, piece in (("1", "forward", "65536"), ("2", "reverse", "999"), ("3", "reverse", "10000000")):
        command = [sys.executable, "-m", "tests.evidence.samples", str(tmp_path / seed), order, piece]
        environment = {"PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo" if seed == "2" else "UTC", "PATH": os.environ["PATH"]}
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        digests.add(result.stdout.strip())
    assert len(digests) == 1
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


async def test_an_evaluation_that_never_ran_has_evidence_too(tmp_path: Path) -> None:
    never = msgspec.structs.replace(samples.PROVENANCE, outcome="cancelled", trials=())
    await build_archive(
        tmp_path / "a", msgspec.structs.replace(samples.inputs(), provenance=never, files=(), events=b"")
    )
    assert check(tmp_path / "a").ok


@pytest.mark.parametrize("content", [b"hello!", b"hell", b"hellox", b""])
async def test_a_stored_file_that_changed_is_noticed_and_nothing_is_left(content: bytes, tmp_path: Path) -> None:
    path = execution_path(1, 1, "x")
    wrong = samples.file(path, content, stated=b"hello")
    with pytest.raises(SourceChanged) as changed:
        await build_archive(tmp_path / "a", msgspec.structs.replace(samples.inputs(), files=(wrong,)))
    assert changed.value.path == path
    assert list(tmp_path.iterdir()) == []


async def test_a_cancelled_sealing_leaves_nothing(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        begun.set()
        await asyncio.Event().wait()

    waiting = EvidenceFile(execution_path(1, 1, "x"), "0" * 64, 2, endless)
    task = asyncio.create_task(
        build_archive(tmp_path / "a", msgspec.structs.replace(samples.inputs(), files=(waiting,)))
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["manifest.json", "statement/x", "trials/../x", "/trials/x", "trials//x", "trials/a\nb"]
)
async def test_a_path_that_is_not_a_trial_s_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        await build_archive(tmp_path / "a", msgspec.structs.replace(samples.inputs(), files=(samples.file(path, b""),)))
    assert list(tmp_path.iterdir()) == []


async def test_two_files_of_one_path_are_refused(tmp_path: Path) -> None:
    twice = samples.file(execution_path(1, 1, "x"), b"")
    with pytest.raises(ValueError, match="same path"):
        await build_archive(tmp_path / "a", msgspec.structs.replace(samples.inputs(), files=(twice, twice)))


def test_a_large_file_is_never_held_in_memory(tmp_path: Path) -> None:
    code = """
import asyncio, hashlib, resource, sys
from pathlib import Path
import msgspec
from app.evidence.archive import EvidenceFile, build_archive, execution_path
from app.evidence.check import check
from tests.evidence import samples
piece, count = bytes(1 << 20), 300
async def source():
    for _ in range(count):
        yield piece
digest = hashlib.sha256()
for _ in range(count):
    digest.update(piece)
large = EvidenceFile(execution_path(1, 1, "x"), digest.hexdigest(), count << 20, source)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
asyncio.run(build_archive(Path(sys.argv[1]), msgspec.structs.replace(samples.inputs(), files=(large,))))
assert check(Path(sys.argv[1])).ok
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    grown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert int(grown) < 120


# ---------------------------------------------------------------- what an attacker may try


def edit(name: str, content: bytes) -> Callable[[Members], Members]:
    return lambda old: [(path, content if path == name else data) for path, data in old]


RESULT = execution_path(1, 1, "result.json")
TAMPERED: dict[str, tuple[Callable[[Members], Members], dict[str, Code]]] = {
    "edited": (edit(RESULT, b'{"reward":0}'), {RESULT: Code.CHANGED}),
    "grown": (edit(RESULT, b'{"reward":1}\n'), {RESULT: Code.CHANGED}),
    "sbom": (edit("sbom.cdx.json", b"{}"), {"sbom.cdx.json": Code.CHANGED}),
    "dropped": (lambda old: [item for item in old if item[0] != RESULT], {RESULT: Code.MISSING}),
    "added": (lambda old: [*old, ("zzz", b"")], {"zzz": Code.NOT_LISTED}),
    "twice": (lambda old: [*old, old[-1]], {execution_path(2, 2, "result.json"): Code.MISPLACED}),
    "reordered": (lambda old: [old[0], *reversed(old[1:])], {}),
    "renamed": (
        lambda old: [("trials/9" if path == RESULT else path, data) for path, data in old],
        {RESULT: Code.MISSING, "trials/9": Code.NOT_LISTED},
    ),
    "no manifest": (lambda old: old[1:], {"README.md": Code.NO_MANIFEST}),
    "another manifest": (edit("manifest.json", b"{}"), {"manifest.json": Code.NO_MANIFEST}),
    "empty": (lambda old: [], {"": Code.NO_MANIFEST}),
    "unclean name": (lambda old: [*old, ("../x", b"")], {"": Code.UNREADABLE}),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_every_change_is_noticed(name: str, archive: Path) -> None:
    change, expected = TAMPERED[name]
    report = rewritten(archive, change(members(archive)))
    assert not report.ok
    if name == "reordered":
        assert set(codes(report).values()) == {Code.MISPLACED}
    else:
        assert codes(report) == expected


def restated(old: Members, name: str, content: bytes) -> Members:
    """The file changed, and the manifest with it."""
    listed = json.loads(old[0][1])
    for file in listed["files"]:
        if file["path"] == name:
            file["sha256"], file["size"] = hashlib.sha256(content).hexdigest(), len(content)
    return edit("manifest.json", json.dumps(listed).encode())(edit(name, content)(old))


def test_a_changed_result_with_a_fitting_manifest_contradicts_the_provenance(archive: Path) -> None:
    report = rewritten(archive, restated(members(archive), RESULT, b'{"reward":0}'))
    assert codes(report) == {RESULT: Code.SUBJECT_DIFFERS}


def test_a_provenance_of_another_evaluation_is_noticed(archive: Path) -> None:
    old = members(archive)
    said = provenance.decode(dict(old)["provenance.json"])
    other = provenance.encode(msgspec.structs.replace(said, evaluation_id="evl_2"))
    assert codes(rewritten(archive, restated(old, "provenance.json", other))) == {
        "provenance.json": Code.BAD_PROVENANCE
    }
    fewer = provenance.encode(msgspec.structs.replace(said, subject=said.subject[1:]))
    assert codes(rewritten(archive, restated(old, "provenance.json", fewer))) == {"events.jsonl": Code.SUBJECT_DIFFERS}
    assert codes(rewritten(archive, restated(old, "provenance.json", b"{"))) == {"provenance.json": Code.BAD_PROVENANCE}


def test_a_manifest_that_lists_a_file_twice_is_noticed(archive: Path) -> None:
    old = members(archive)
    listed = json.loads(old[0][1])
    listed["files"].insert(1, listed["files"][0])
    report = rewritten(archive, edit("manifest.json", json.dumps(listed).encode())(old))
    assert codes(report) == {"manifest.json": Code.MISPLACED}


def test_no_cut_and_no_flipped_byte_checks(archive: Path) -> None:
    whole = archive.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 100)):
        archive.write_bytes(whole[:place])
        assert not check(archive).ok
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert not check(archive).ok
    archive.write_bytes(whole + b"more")
    assert not check(archive).ok


@given(st.binary(max_size=300))
def test_no_bytes_stop_the_check(data: bytes) -> None:
    path = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / f"seatrial-check-{os.getpid()}"
    path.write_bytes(data)
    try:
        assert not check(path).ok
    finally:
        path.unlink()


# ---------------------------------------------------------------- names that agents choose

wild = (
    st.text(st.characters(), min_size=1, max_size=30)
    | st.text("ab/.%~\\\u0301é", min_size=1, max_size=12)
    | st.text("é\x00", min_size=200, max_size=260)
)


@given(wild, wild)
@example("\ud800", "\udced\udca0\udc80")
@example("\ud800" * 90, "\ud801" * 90)
def test_two_names_never_become_one_and_every_name_is_taken(first: str, second: str) -> None:
    paths = [execution_path(1, 1, name) for name in (first, second)]
    assert (paths[0] == paths[1]) == (first == second)
    for path in paths:
        assert names.clean(path, LIMITS) == path


def test_usual_names_stay_as_they_are() -> None:
    for name in ("result.json", "agent/oracle.txt", "artifacts/a b (1).ü.txt", "x:y", "a~b"):
        assert execution_path(1, 2, name) == f"trials/1/executions/2/{name}"


async def test_names_with_bytes_that_are_not_text_survive(tmp_path: Path) -> None:
    name = b"bad\xff\x00\nname".decode("utf-8", "surrogateescape")
    content = samples.file(execution_path(1, 1, name), b"x")
    await build_archive(tmp_path / "a", msgspec.structs.replace(samples.inputs(), files=(content,)))
    assert check(tmp_path / "a").ok


def test_sealing_and_checking_do_not_import_cyclonedx() -> None:
    code = "import sys, app.evidence.archive, app.evidence.check; print('cyclonedx' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
