"""Images to be read in tests, made byte by byte as engines write them."""

import hashlib
import io
import json
import tarfile


def layer(files: dict[str, bytes | None], links: dict[str, str] | None = None) -> bytes:
    """A layer of files; None makes a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return out.getvalue()


def saved(layers: list[bytes], *, legacy: bool = False) -> io.BytesIO:
    """`docker save`: OCI's layout since Docker 25, or Docker's own of before."""
    out = io.BytesIO()
    diff_ids = ["sha256:" + hashlib.sha256(data).hexdigest() for data in layers]
    config = json.dumps({"architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": diff_ids}}).encode()
    config_name = hashlib.sha256(config).hexdigest()
    if legacy:
        paths = [f"{digest[7:]}/layer.tar" for digest in diff_ids]
        config_path = f"{config_name}.json"
    else:
        paths = [f"blobs/sha256/{digest[7:]}" for digest in diff_ids]
        config_path = f"blobs/sha256/{config_name}"
    members = dict(zip(paths, layers, strict=True)) | {config_path: config}
    manifest = json.dumps([{"Config": config_path, "RepoTags": ["x:1"], "Layers": paths}]).encode()
    with tarfile.open(fileobj=out, mode="w") as archive:
        # The layers' order in the stream is that of their digests, not that of the image.
        for path in sorted(members):
            member = tarfile.TarInfo(path)
            member.size = len(members[path])
            archive.addfile(member, io.BytesIO(members[path]))
        member = tarfile.TarInfo("manifest.json")
        member.size = len(manifest)
        archive.addfile(member, io.BytesIO(manifest))
    out.seek(0)
    return out


def dpkg(*packages: str, status: str = "install ok installed") -> bytes:
    """A dpkg status; `name=version`."""
    paragraphs = [
        f"Package: {name}\nStatus: {status}\nArchitecture: amd64\nVersion: {version}\nDescription: {name}\n Version: 0\n"
        for name, _, version in (package.partition("=") for package in packages)
    ]
    return "\n".join(paragraphs).encode()


def metadata(name: str, version: str, license: str = "") -> bytes:
    head = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    return (head + (f"License-Expression: {license}\n" if license else "") + "\nName: not-this\n").encode()
