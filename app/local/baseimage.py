"""Base images where no registry can be reached: pulled when one can, else made from Debian packages on this machine.

Two of them: a small one for tests, of static bash and busybox (4 MB), and a stand-in for Debian's slim image, for packs that
start `FROM debian:bookworm-slim`. A stand-in carries the label `org.seatrial.stand-in`, so that nobody takes it for the
published one. `python -m app.local.baseimage [NAME…]` makes those that lack.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec

from app.local import apt
from app.local.docker_packages import Progress
from app.local.engine import Engine, connection
from app.local.errors import BaseImageUnavailable, EngineUnavailable

TEST_BASE = "seatrial-test-base:1"
DEBIAN_BASE = "debian:bookworm-slim"
LABEL = "org.seatrial.stand-in"
PULL_SECONDS = 300.0
PULL_SILENCE_SECONDS = 20.0
"""A registry that does not answer is given up after this long; where there is no network the engine says so at once."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_DOCUMENTATION = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")

ACCOUNTS = (
    "root:x:0:0:root:/root:/bin/bash\n"
    "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n"
)
GROUP = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"
OS_RELEASE = 'ID=seatrial-test\nNAME="Seatrial test base"\nVERSION_ID="1"\nPRETTY_NAME="Seatrial test base 1"\n'


class Facts(msgspec.Struct, frozen=True):
    """An image of the engine: its id (the digest of its configuration) and whether we made it."""

    id: str
    stand_in: bool


def find_image(engine: Engine, name: str) -> Facts | None:
    """The image of that name, or None. Asks the engine only, never a registry."""
    status, body = _call(engine, "GET", f"/images/{quote(name, safe='/:@')}/json")
    if status == 404:
        return None
    facts = json.loads(body)
    if status != 200:
        raise EngineUnavailable(f"{engine.host} answered {status} for an image: {facts.get('message', '')}")
    labels = (facts.get("Config") or {}).get("Labels") or {}
    return Facts(id=str(facts["Id"]), stand_in=LABEL in labels)


def ensure_image(engine: Engine, name: str, *, progress: Progress = lambda line: None) -> Facts:
    """The image of that name: as it is, pulled, or made here. Raises BaseImageUnavailable when there is no way."""
    found = find_image(engine, name)
    if found is not None:
        return found
    if name != TEST_BASE:
        progress(f"fetching the base image {name}")
        refusal = _pull(engine, name)
        if refusal is None and (found := find_image(engine, name)) is not None:
            return found
    else:
        refusal = "it is published nowhere"
    maker = {TEST_BASE: _small_tree, DEBIAN_BASE: _debian_tree}.get(name)
    if maker is None:
        raise BaseImageUnavailable(
            f"The base image {name} could not be fetched ({refusal}); load it with `docker load`."
        )
    if not apt.has_apt():
        raise BaseImageUnavailable(
            f"The base image {name} could not be fetched ({refusal}), and making one needs Debian's apt; load it with `docker load`."
        )
    progress(f"making the base image {name} from Debian packages")
    try:
        with tempfile.TemporaryDirectory(prefix="seatrial-base-") as folder:
            tree = Path(folder) / "tree.tar"
            maker(tree)
            _import(engine, name, tree)
    except apt.CommandFailed as error:
        raise BaseImageUnavailable(f"The base image {name} could not be made here ({error.line}).") from error
    found = find_image(engine, name)
    if found is None:
        raise BaseImageUnavailable(f"The engine took the base image {name} and does not have it; see the engine's log.")
    return found


def _pull(engine: Engine, name: str) -> str | None:
    """Pull an image. Returns why it failed, or None."""
    image, _, tag = name.rpartition(":")
    client = connection(engine.host, PULL_SILENCE_SECONDS)
    deadline = time.monotonic() + PULL_SECONDS
    try:
        client.request(
            "POST", "/images/create?" + urlencode({"fromImage": image, "tag": tag}), headers={"Host": "engine"}
        )
        answer = client.getresponse()
        if answer.status != 200:
            return str(json.loads(answer.read()).get("message", answer.status))
        while line := answer.readline():
            if error := json.loads(line).get("error"):
                return str(error)
            if time.monotonic() > deadline:
                return f"no end within {PULL_SECONDS:.0f} s"
    except TimeoutError:
        return "the registry does not answer"
    except (OSError, ValueError) as error:
        return str(error)
    finally:
        client.close()
    return None


def _import(engine: Engine, name: str, tree: Path) -> None:
    """`docker import`: one layer from a tar of a root folder."""
    image, _, tag = name.rpartition(":")
    changes = [f"ENV PATH={PATH}", f"LABEL {LABEL}=1", 'CMD ["bash"]']
    query = urlencode([("fromSrc", "-"), ("repo", image), ("tag", tag), *(("changes", change) for change in changes)])
    client = connection(engine.host, 300)
    try:
        with tree.open("rb") as body:
            headers = {
                "Host": "engine",
                "Content-Type": "application/x-tar",
                "Content-Length": str(tree.stat().st_size),
            }
            client.request("POST", f"/images/create?{query}", body=body, headers=headers)
            answer = client.getresponse()
            lines = answer.read().splitlines()
        errors = [fields for line in lines if line.strip() and "error" in (fields := json.loads(line))]
        if answer.status != 200 or errors:
            raise BaseImageUnavailable(
                f"The engine refused the base image {name} ({lines[-1].decode() if lines else answer.status})."
            )
    finally:
        client.close()


def _small_tree(tree: Path) -> None:
    """bash and every applet of busybox, root and uid 1000: what a control plane's tests need, in 4 MB."""
    with tempfile.TemporaryDirectory(prefix="seatrial-base-") as name:
        unpacked = Path(name)
        _unpack(["busybox-static", "bash-static"], unpacked)
        busybox = next(path for path in (unpacked / "bin/busybox", unpacked / "usr/bin/busybox") if path.is_file())
        bash = next(path for path in (unpacked / "bin/bash-static", unpacked / "usr/bin/bash-static") if path.is_file())
        listing = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True)
        applets = sorted(set(listing.stdout.split()) - {"busybox", "bash"})
        with tarfile.open(tree, "w") as archive:
            for folder, mode in _small_folders():
                _add(archive, folder, mode=mode, kind=tarfile.DIRTYPE, owner=1000 if folder == "home/agent" else 0)
            _add(archive, "bin/busybox", mode=0o755, content=busybox.read_bytes())
            _add(archive, "bin/bash", mode=0o755, content=bash.read_bytes())
            for applet in applets:
                _add(archive, f"bin/{applet}", mode=0o777, kind=tarfile.SYMTYPE, link="busybox")
            _add(archive, "usr/bin", mode=0o777, kind=tarfile.SYMTYPE, link="../bin")
            for path, text in (("etc/passwd", ACCOUNTS), ("etc/group", GROUP), ("etc/os-release", OS_RELEASE)):
                _add(archive, path, mode=0o644, content=text.encode())


def _small_folders() -> Iterator[tuple[str, int]]:
    for folder in ("bin", "etc", "home", "home/agent", "proc", "sys", "dev", "run", "usr", "var", "var/log", "app"):
        yield folder, 0o755
    yield "root", 0o700
    yield "tmp", 0o1777
    yield "var/tmp", 0o1777


def _add(
    archive: tarfile.TarFile,
    path: str,
    *,
    mode: int,
    content: bytes = b"",
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    owner: int = 0,
) -> None:
    member = tarfile.TarInfo(path)
    member.mode, member.type, member.linkname, member.size = mode, kind, link, len(content)
    member.uid = member.gid = owner
    archive.addfile(member, io.BytesIO(content))


def _debian_tree(tree: Path) -> None:
    """Debian's minimal system without documentation, from the mirror that this machine uses. Needs root and mmdebstrap."""
    codename = DEBIAN_BASE.partition(":")[2].partition("-")[0]
    own = apt.main_archive(apt.sources(), apt.release().codename)
    if own is None or os.geteuid() != 0:
        raise BaseImageUnavailable(
            f"Making {DEBIAN_BASE} needs root and a Debian mirror in apt's sources; load it with `docker load`."
        )
    source = msgspec.structs.replace(own, suite=codename, components="main")
    if shutil.which("mmdebstrap") is None:
        with apt.private() as packages:
            packages.update()
            packages.install(["mmdebstrap"])
    excludes = [f"--dpkgopt=path-exclude={pattern}" for pattern in NO_DOCUMENTATION]
    apt.run(
        [
            *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=tar", "--quiet", *excludes),
            *('--aptopt=APT::Install-Recommends "false"', codename, str(tree), source.line()),
        ],
        timeout=900,
    )


def _unpack(packages: Sequence[str], destination: Path) -> None:
    """Fetch and unpack packages, with the machine's own lists where it has them, else with fresh ones."""
    with contextlib.suppress(apt.CommandFailed):
        apt.Apt(options=()).unpack(packages, destination)
        return
    with apt.private() as fresh:
        fresh.update()
        fresh.unpack(packages, destination)


def _call(engine: Engine, method: str, path: str) -> tuple[int, bytes]:
    client = connection(engine.host)
    try:
        client.request(method, path, headers={"Host": "engine"})
        answer = client.getresponse()
        return answer.status, answer.read()
    except OSError as error:
        raise EngineUnavailable(f"The container engine at {engine.host} went away; start it again.") from error
    finally:
        client.close()


def main(names: Sequence[str]) -> int:
    from app import settings
    from app.local.engine import ensure
    from app.local.errors import LocalError

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        engine = ensure(settings.load(), progress=say)
        for name in names or (TEST_BASE, DEBIAN_BASE):
            print(f"{name}  {ensure_image(engine, name, progress=say).id}")
    except (LocalError, settings.SettingsInvalid) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
