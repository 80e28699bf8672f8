"""A registry that serves one image: the pull half of the OCI distribution specification, on a loopback port.

Engines take plain HTTP from loopback addresses, so that a test can pull for real where no registry can be reached.
"""

import contextlib
import gzip
import hashlib
import json
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.images.samples import layer

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
SERVED: set[str] = set()
"""The addresses of the registries of this process, also of those that have ended."""


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Registry:
    """`name` is `127.0.0.1:<port>/served/image:1`."""

    def __init__(self, files: dict[str, bytes | None]) -> None:
        plain = layer(files)
        packed = gzip.compress(plain, mtime=0)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"WorkingDir": "/served", "User": "1000"},
                "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {
                    "mediaType": "application/vnd.oci.image.config.v1+json",
                    "digest": digest(config),
                    "size": len(config),
                },
                "layers": [
                    {
                        "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                        "digest": digest(packed),
                        "size": len(packed),
                    }
                ],
            }
        ).encode()
        self.digest = digest(manifest)
        self.blobs = {digest(data): data for data in (config, packed)}
        self.manifests = {"1": manifest, self.digest: manifest}
        self.silent = False
        """Answers every question with 503."""
        self.asked: list[str] = []

    def answer(self, path: str) -> tuple[int, str, bytes]:
        self.asked.append(path)
        if self.silent:
            return 503, "text/plain", b"away"
        if path == "/v2/":
            return 200, "application/json", b"{}"
        kind, _, name = path.removeprefix("/v2/served/image/").partition("/")
        if kind == "manifests" and name in self.manifests:
            return 200, MANIFEST, self.manifests[name]
        if kind == "blobs" and name in self.blobs:
            return 200, "application/octet-stream", self.blobs[name]
        return 404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'

    @contextlib.contextmanager
    def served(self) -> Generator[str]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def parse_request(self) -> bool:
                if self.raw_requestline.startswith(b"\x16"):
                    # A TLS greeting: engines try that first, and take this answer for plain HTTP.
                    self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                    self.close_connection = True
                    return False
                return super().parse_request()

            def do_GET(self) -> None:
                status, kind, body = registry.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Content-Digest", digest(body))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 (the name that http.server looks up)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        SERVED.add(host := f"127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield host
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
