"""Reading the machine's package sources, and taking packages without a trace in its configuration."""

from pathlib import Path

import pytest

from app.local import apt

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb http://mirror.example/debian bookworm main contrib
deb [arch=amd64 signed-by=/usr/share/keyrings/key.gpg] http://mirror.example/security bookworm-security main # note
deb-src http://mirror.example/debian bookworm main
"""
DEB822 = """\
Types: deb deb-src
URIs: http://mirror.example/debian http://second.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/key.gpg

Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main
Enabled: no

# a third party's
Types: deb
URIs: http://third.example/tool
Suites: stable
Components: main
Trusted: yes
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


def test_one_line_sources_are_read_with_their_options(tmp_path: Path) -> None:
    assert apt.sources(written(tmp_path, "sources.list", ONE_LINE)) == [
        apt.Source("http://mirror.example/debian", "bookworm", "main contrib"),
        apt.Source("http://mirror.example/security", "bookworm-security", "main", "/usr/share/keyrings/key.gpg"),
    ]


def test_deb822_sources_are_read_for_each_address_and_suite_that_is_enabled(tmp_path: Path) -> None:
    found = apt.sources(written(tmp_path, "sources.list.d/debian.sources", DEB822))
    key = "/usr/share/keyrings/key.gpg"
    assert found == [
        *(
            apt.Source(f"http://{host}.example/debian", suite, "main", key)
            for host in ("mirror", "second")
            for suite in ("trixie", "trixie-updates")
        ),
        apt.Source("http://third.example/tool", "stable", "main", "", trusted=True),
    ]


def test_files_that_apt_ignores_are_ignored(tmp_path: Path) -> None:
    assert apt.sources(written(tmp_path, "sources.list.d/old.list.disabled", ONE_LINE)) == []
    assert apt.sources(tmp_path / "missing") == []


def test_the_main_archive_is_not_its_updates() -> None:
    updates = apt.Source("http://mirror.example/debian", "bookworm-updates", "main")
    own = apt.Source("http://mirror.example/debian", "bookworm", "main")
    assert apt.main_archive([updates, own], "bookworm") == own
    assert apt.main_archive([updates], "bookworm") is None


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("key", ["", "/usr/share/keyrings/key.gpg"])
def test_a_source_reads_back_as_it_was_written_in_both_formats(tmp_path: Path, key: str, trusted: bool) -> None:
    source = apt.Source("http://mirror.example/debian", "bookworm", "main", key, trusted)
    assert apt.sources(written(tmp_path / "a", "sources.list", source.line())) == [source]
    assert apt.sources(written(tmp_path / "b", "sources.list.d/x.sources", source.stanza())) == [source]


def test_the_release_is_told_with_its_family(tmp_path: Path) -> None:
    path = tmp_path / "os-release"
    path.write_text('ID=ubuntu\nID_LIKE="debian"\nVERSION_CODENAME=noble\n')
    assert apt.release(path) == apt.Release("ubuntu", ("debian",), "noble")
    assert apt.release(path).is_debian_like
    path.write_text("ID=fedora\n")
    assert not apt.release(path).is_debian_like
    assert not apt.release(tmp_path / "missing").is_debian_like


def test_packages_are_taken_without_a_trace_in_the_configuration(tmp_path: Path) -> None:
    before = sorted(apt.ETC.rglob("*"))
    with apt.private() as packages:
        packages.update()
        packages.unpack(["busybox-static"], tmp_path)
        folder = Path(packages.options[3].removeprefix("Dir::Etc::SourceParts="))
        assert folder.is_dir()
    assert any(path.name == "busybox" for path in tmp_path.rglob("*"))
    assert sorted(apt.ETC.rglob("*")) == before
    assert not folder.exists()


def test_a_package_that_does_not_exist_is_told_in_apts_own_words(tmp_path: Path) -> None:
    with pytest.raises(apt.CommandFailed, match="no-such-package-anywhere"):
        apt.Apt(options=()).unpack(["no-such-package-anywhere"], tmp_path)
