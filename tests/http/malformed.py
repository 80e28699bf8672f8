"""Requests as nobody should send them, made from a seed: each is a row of bytes and pauses for a bare socket.

`Abuse.canary` stands somewhere in what is sent and must not come back.
"""

import base64
import gzip
import json
import random
import uuid
from collections.abc import Callable

import msgspec

from app.bus import cursor

Part = bytes | float
"""Bytes to send, or seconds to wait."""
HUGE = [
    "9" * 400,
    "-" + "9" * 5000,
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "0x10",
    "1_000",
    "१२",
    "٣",
    "1.0",
    "",
    "-0",
    "+1",
]
METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PRI",
    "PROPFIND",
    "get",
    "G ET",
    "X" * 300,
)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, to be asked for in wrong ways."""

    key: str
    run: str
    trial: str
    revision: str
    evaluation: str
    upload: str
    position: str
    """A cursor."""
    theirs: str
    """A cursor that was bound to another team."""
    page_token: str


class Abuse(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    parts: tuple[Part, ...]
    canary: bytes
    answers: int = 1
    """As many are waited for, unless the server closes first."""
    silent: bool = False
    """The client goes away without reading, or may be left without an answer."""
    receives: bool = True
    """Whether it reads at all before it goes away."""
    half_close: bool = False
    """It says that nothing more comes, and reads on."""


class Maker:
    """The requests of a seed, one by one: `make()`."""

    def __init__(self, seed: int, known: Known) -> None:
        self.random, self.known = random.Random(seed), known
        self.kinds: tuple[Callable[[], Abuse], ...] = (
            self.wrong_types, self.deep, self.encodings, self.duplicate_keys, self.large_bodies, self.lengths,
            self.chunks, self.framings, self.compressed, self.heads, self.targets, self.methods, self.cursors,
            self.idempotency, self.half_uploads, self.slow, self.no_reader, self.pipelines, self.ranges,
            self.credentials, self.numbers, self.references, self.garbage, self.negotiation,
        )  # fmt: skip

    def make(self, number: int) -> Abuse:
        self.canary = b"canary-%d-%s" % (number, self.random.randbytes(6).hex().encode())
        kind = self.kinds[number % len(self.kinds)]
        made = kind()
        return msgspec.structs.replace(made, kind=kind.__name__)

    # ------------------------------------------------------------ building blocks

    def text(self) -> str:
        return self.canary.decode()

    def head(
        self, method: str, target: str | bytes, *fields: str | bytes, key: bool = True, close: bool = True
    ) -> bytes:
        lines = [b" ".join((_bytes(method), _bytes(target), b"HTTP/1.1")), b"Host: localhost"]
        lines += [b"Authorization: Bearer " + self.known.key.encode()] if key else []
        lines += [b"Connection: close"] if close else []
        return b"\r\n".join([*lines, *map(_bytes, fields), b"", b""])

    def body(
        self, content: bytes, *fields: str | bytes, target: str = "/v1/runs", method: str = "POST"
    ) -> tuple[Part, ...]:
        typed = (
            ()
            if any(_bytes(one).lower().startswith(b"content-type") for one in fields)
            else ("Content-Type: application/json",)
        )
        return (self.head(method, target, *typed, *fields, f"Content-Length: {len(content)}"), content)

    def sent(self, *parts: Part, **more: bool | int) -> Abuse:
        return Abuse(kind="", parts=parts, canary=self.canary, **more)  # type: ignore[arg-type]

    def json_target(self) -> str:
        known = self.known
        return self.random.choice(
            ("/v1/runs", "/v1/keys", "/v1/tasks/there/revisions", "/v1/agents", f"/v1/tasks/{known.run}/revisions")
        )

    def get_target(self) -> str:
        known = self.known
        return self.random.choice(
            (
                "/v1/runs", "/v1/events", "/v1/tasks", "/v1/keys", "/v1/me", "/readyz", "/docs", "/openapi.json", "/metrics",
                f"/v1/runs/{known.run}", f"/v1/runs/{known.run}/trials", f"/v1/runs/{known.run}/events",
                f"/v1/trials/{known.trial}/logs", f"/v1/trials/{known.trial}/artifacts", f"/v1/trials/{known.trial}/artifacts/a/b.txt",
                f"/v1/evaluations/{known.evaluation}/archive", f"/v1/revisions/{known.revision}/logs",
            )
        )  # fmt: skip

    def value(self) -> str:
        """A JSON value, not always one that JSON has."""
        return self.random.choice(
            (
                *HUGE, "null", "true", "[]", "{}", '""', '"\\u0000"', '"\\ud800"', '"' + "x" * 5000 + '"', '[[[[[1]]]]]',
                '{"__proto__":{}}', f'"{self.text()}"', '["a",1,null]', '{"name":{"name":"oracle"}}', '"\\ud83d"', '"\\',
            )
        )  # fmt: skip

    # ------------------------------------------------------------ bodies

    def wrong_types(self) -> Abuse:
        fields = {
            "tasks": '["there"]', "agent": '{"name":"oracle"}', "trials": "1", "name": f'"{self.text()}"', "labels": "{}",
            "priority": "0", "deadline_seconds": "60", "upload": f'"{self.known.upload}"', "role": '"viewer"',
            "expires_at": '"2030-01-01T00:00:00Z"',
        }  # fmt: skip
        chosen = {name: fields[name] for name in self.random.sample(sorted(fields), self.random.randint(1, 5))}
        for name in self.random.sample(sorted(chosen), self.random.randint(1, len(chosen))):
            chosen[name] = self.value()
        content = "{" + ",".join(f'"{name}":{value}' for name, value in chosen.items()) + "}"
        return self.sent(*self.body(content.encode(), target=self.json_target()))

    def deep(self) -> Abuse:
        depth = self.random.choice((50, 500, 5_000, 100_000))
        opening, closing = self.random.choice((("[", "]"), ('{"a":', "}")))
        inner = opening * depth + "1" + closing * depth * self.random.randint(0, 1)
        content = '{"tasks":["there"],"agent":{"name":"oracle","settings":{"a":' + inner + "}}}"
        return self.sent(*self.body(content.encode(), target=self.random.choice(("/v1/runs", "/v1/keys"))))

    def encodings(self) -> Abuse:
        content = json.dumps({"name": self.text()})
        raw = self.random.choice(
            (
                content.encode("utf-16"), content.encode("utf-32"), b"\xef\xbb\xbf" + content.encode(),
                content.encode().replace(b"canary", b"\xed\xa0\x80"), content.encode().replace(b"canary", b"\xc0\xaf"),
                content.encode().replace(b"canary", b"\xff"), b"\x00" + content.encode(), b'{"name":"\\ud800\\ud800"}',
                b'{"name":"a\x00b"}', b'{"name":"a\x01b"}',
            )
        )  # fmt: skip
        kind = self.random.choice(
            (
                "application/json", "application/json; charset=utf-16", "application/json;charset=latin-1", "text/plain",
                "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "application/xml", ";;;", "a" * 300,
                f"application/{self.text()}", "application/json; charset",
            )
        )  # fmt: skip
        return self.sent(*self.body(raw, f"Content-Type: {kind}", target=self.json_target()))

    def duplicate_keys(self) -> Abuse:
        content = f'{{"name":"a","name":{self.value()},"name":"{self.text()}","role":"viewer","role":"viewer"}}'
        return self.sent(*self.body(content.encode(), target="/v1/keys"))

    def large_bodies(self) -> Abuse:
        size = self.random.choice((1024**2 + 1, 2 * 1024**2, 5 * 1024**2))
        content = b'{"name":"' + self.canary * (size // len(self.canary)) + b'"}'
        if self.random.random() < 0.5:
            return self.sent(*self.body(content, target=self.json_target()))
        chunked = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in _cut(content, 60_000)) + b"0\r\n\r\n"
        fields = ("Content-Type: application/json", "Transfer-Encoding: chunked")
        return self.sent(self.head("POST", self.json_target(), *fields), chunked)

    def compressed(self) -> Abuse:
        content = json.dumps({"name": self.text(), "role": "viewer"}).encode()
        packed = self.random.choice((gzip.compress(content), gzip.compress(b"0" * 10**7), content))
        encoding = self.random.choice(("gzip", "br", "zstd", "deflate", "gzip, gzip", "identity, gzip", self.text()))
        target, method = self.random.choice(
            (("/v1/keys", "POST"), ("/v1/runs", "POST"), (f"/v1/uploads/{self.known.upload}/content", "PUT"))
        )
        kind = "application/octet-stream" if method == "PUT" else "application/json"
        return self.sent(
            *self.body(packed, f"Content-Type: {kind}", f"Content-Encoding: {encoding}", target=target, method=method)
        )

    # ------------------------------------------------------------ framing

    def lengths(self) -> Abuse:
        content = json.dumps({"name": self.text()}).encode()
        length = self.random.choice(
            (
                "0",
                str(len(content) - 3),
                str(len(content) + 50),
                "-1",
                "+5",
                "0x5",
                "5, 5",
                "1e3",
                "9" * 30,
                "999999999999",
                "",
                " ",
                "5 5",
            )
        )
        head = self.head("POST", self.json_target(), "Content-Type: application/json", f"Content-Length: {length}")
        return self.sent(head, content, half_close=True, silent=True)

    def chunks(self) -> Abuse:
        size = b"%x" % len(self.canary)
        lie = self.random.choice(
            (
                b"zz\r\n" + self.canary, b"-1\r\n" + self.canary, b"f" * 16 + b"\r\n" + self.canary, b"f" * 40 + b"\r\n",
                size + b";" + b"e" * 50_000 + b"\r\n" + self.canary + b"\r\n0\r\n\r\n", size + b"\r\n" + self.canary,
                size + b"\r\n" + self.canary + b"extra\r\n0\r\n\r\n", b"1\r\n" + self.canary + b"\r\n0\r\n\r\n",
                b"0\r\nTrailer: " + b"t" * 60_000 + b"\r\n\r\n", b"0\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
                b"0\r\n" + b"Host: evil\r\n\r\n", b"\r\n\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n", size + b"\n" + self.canary + b"\n0\n\n",
            )
        )  # fmt: skip
        target, method = self.random.choice((("/v1/runs", "POST"), (f"/v1/uploads/{self.known.upload}/content", "PUT")))
        kind = "application/octet-stream" if method == "PUT" else "application/json"
        head = self.head(method, target, f"Content-Type: {kind}", "Transfer-Encoding: chunked")
        return self.sent(head, lie, half_close=True, silent=True)

    def framings(self) -> Abuse:
        content = b'{"name":"x"}'
        fields = self.random.choice(
            (
                ("Content-Length: 12", "Transfer-Encoding: chunked"), ("Content-Length: 12", "Content-Length: 13"),
                ("Transfer-Encoding: gzip, chunked",), ("Transfer-Encoding: chunked, identity",), ("Transfer-Encoding: xchunked",),
                ("Transfer-Encoding : chunked",), ("Transfer-Encoding:\x0bchunked",), ("Content-Length: 12", "Content-Length: 12"),
                ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), ("Expect: 200-maybe", "Content-Length: 12"),
                ("Expect: 100-continue", "Content-Length: 12"), ("Upgrade: websocket", "Connection: Upgrade", "Content-Length: 12"),
                ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "Content-Length: 12"),
            )
        )  # fmt: skip
        head = self.head("POST", "/v1/keys", "Content-Type: application/json", *fields)
        return self.sent(head, content, half_close=True, silent=True)

    def heads(self) -> Abuse:
        many = self.random.choice((200, 2_000, 20_000))
        field = self.random.choice(
            (
                b"X-Long: " + self.canary * self.random.choice((100, 2_000, 50_000)), b"X: y\r\n" * many + b"Z: z",
                b"Bad Name: x", b": empty", b"X\x00Y: z", b"X: a\x00b", b"X: \xff\xfe\xc3\x28", b"X: a\r\n folded", b"No-Colon",
                b"X: a\rb", b"Host: a\r\nHost: b", b"Cookie: " + b"a=b; " * 2_000, b"Cookie: " + bytes(range(128, 256)),
                b"Cookie: ===;;; =x; a", b"X-Forwarded-For: " + b"1.1.1.1, " * 1_000, b"Traceparent: 00-zz",
                b"Content-Type: application/json\r\nContent-Type: text/plain",
            )
        )  # fmt: skip
        return self.sent(self.head("GET", self.get_target(), field), silent=True)

    def targets(self) -> Abuse:
        target = self.random.choice(
            (
                b"/v1/runs/%00", b"/v1/runs/%ff%fe", b"/v1/runs/%zz", b"/v1/runs/" + b"a" * 9_000, b"/" + b"a/" * 10_000, b"//v1//runs",
                b"/v1/runs/../../etc/passwd", b"/v1/runs/..%2f..%2fetc", b"/v1/runs/\xc3\xbc", b"/v1/runs/%C3%BC", b"*", b"http://else/v1/me",
                b"http://[::1", b"/v1/me#part", b"/v1/runs?" + b"a=b&" * 2_000, b"/v1/runs?status=%ff", b"/v1/runs?status=%00",
                b"/v1/runs?page_size=1&page_size=2", b"/v1/runs?%zz=%zz", b"/v1/runs?" + self.canary + b"=1", b"/v1/runs?&&&==&",
                b"/v1/runs?status[]=x", b"v1/runs", b"", b"/v1/runs/" + self.canary * 20, b"/v1/trials/%s/artifacts/%%2e%%2e/x" % self.known.trial.encode(),
                b"/v1/trials/%s/artifacts/" % self.known.trial.encode(), b"/v1/runs/ /x", b"/docs/../openapi.json", b"/v1/events?type=" + b"x" * 3_000,
            )
        )  # fmt: skip
        return self.sent(self.head("GET", target), silent=True)

    def methods(self) -> Abuse:
        return self.sent(self.head(self.random.choice(METHODS), self.get_target(), "Content-Length: 0"), silent=True)

    # ------------------------------------------------------------ what Seatrial itself reads

    def cursors(self) -> Abuse:
        known = self.known
        right = self.random.choice((known.position, known.page_token, known.theirs))
        flipped = list(right)
        flipped[self.random.randrange(len(right))] = self.random.choice("AZaz09-_.=%")
        wrong = self.random.choice(
            (
                right[: self.random.randrange(len(right))], "".join(flipped), right + "=", right * 5, known.theirs, known.page_token,
                cursor.write(uuid.UUID(int=self.random.getrandbits(128)), 7), base64.urlsafe_b64encode(self.random.randbytes(25)).decode(),
                "latest", "LATEST", "0", "-1", "9" * 200, "null", self.text(), "a.b", "1.1", "99999999999999999999.1", "\u0661.1",
            )
        )  # fmt: skip
        stream = self.random.random() < 0.3
        where = self.random.choice(("page_token", "after", "last-event-id", "seatrial-after"))
        target = self.random.choice(
            (
                "/v1/runs",
                "/v1/tasks",
                "/v1/keys",
                "/v1/events",
                f"/v1/runs/{known.run}/logs",
                f"/v1/trials/{known.trial}/logs",
                f"/v1/runs/{known.run}/trials",
            )
        )
        accept = ("Accept: text/event-stream",) if stream or where == "last-event-id" else ()
        if where in ("page_token", "after"):
            escaped = "".join(one if one.isalnum() and one.isascii() else f"%{one.encode()[0]:02x}" for one in wrong)
            return self.sent(self.head("GET", f"{target}?{where}={escaped}", *accept))
        return self.sent(self.head("GET", target, f"{where}: ".encode() + wrong.encode(), *accept))

    def idempotency(self) -> Abuse:
        if self.random.random() < 0.5:
            wrong = self.random.choice((b"", b"x" * 256, b"a\tb", b"\xff\xff", "schlüssel".encode(), b" "))
            return self.sent(
                *self.body(b'{"name":"x","role":"viewer"}', b"Idempotency-Key: " + wrong, target="/v1/keys")
            )
        number = self.random.getrandbits(64)
        first = {"tasks": ["there"], "agent": {"name": "oracle"}}
        second = first | {"name": self.text()}
        parts: list[Part] = []
        for content in (first, second):
            raw = json.dumps(content).encode()
            fields = ("Content-Type: application/json", f"Idempotency-Key: {number}", f"Content-Length: {len(raw)}")
            parts += [self.head("POST", "/v1/runs", *fields, close=content is second), raw]
        return self.sent(*parts, answers=2)

    def half_uploads(self) -> Abuse:
        head = self.head(
            "PUT",
            f"/v1/uploads/{self.known.upload}/content",
            "Content-Type: application/octet-stream",
            f"Content-Length: {self.random.choice((1_000_000, 4_000_000, 10**13))}",
        )
        content = self.random.randbytes(self.random.choice((0, 10, 100_000)))
        way = self.random.randrange(3)
        return self.sent(head, content, silent=True, receives=way > 0, half_close=way == 1)

    def slow(self) -> Abuse:
        """A byte now and then, of the head or of the body; some never go on."""
        head = self.head("POST", "/v1/keys", "Content-Type: application/json", "Content-Length: 40")
        whole = head + b'{"name":"' + self.canary
        start = self.random.choice((0, 10, len(head) - 2, len(head), len(head) + 5))
        step: tuple[Part, ...] = tuple(
            part for at in range(start, min(start + 4, len(whole))) for part in (0.05, whole[at : at + 1])
        )
        return self.sent(whole[:start] or b"G", *step, silent=True)

    def no_reader(self) -> Abuse:
        return self.sent(self.head("GET", "/openapi.json", close=False) * 8, 0.1, silent=True, receives=False)

    def pipelines(self) -> Abuse:
        many = self.random.choice((2, 10, 30, 200))
        one = self.head(self.random.choice(("GET", "HEAD", "DELETE")), self.get_target(), close=False)
        parts = one * many if self.random.random() < 0.7 else one * (many // 2) + b"GARBAGE\r\n\r\n" + one
        return self.sent(parts, answers=1, silent=True)

    def ranges(self) -> Abuse:
        wanted = self.random.choice(
            (
                "bytes=0-", "bytes=-0", "bytes=5-2", "bytes=999999-", "bytes=0-0,2-2", "bytes=" + "0-1," * 2_000, "bytes=-", "lines=1-2",
                "bytes=" + "9" * 5_000 + "-", "bytes=0-" + "9" * 5_000, "bytes=a-b", "bytes=-9999999999999999999", "bytes", "", self.text(),
                "bytes=\u0661-\u0662", "bytes = 0-1", "bytes=0--1",
            )
        )  # fmt: skip
        condition = self.random.choice(
            ('If-Range: W/"x"', 'If-None-Match: ,,,"', "If-Range: Mon, 99 Foo", "If-None-Match: *", "If-Match: x")
        )
        return self.sent(
            self.head(
                self.random.choice(("GET", "HEAD")),
                f"/v1/trials/{self.known.trial}/artifacts/a/b.txt",
                b"Range: " + wanted.encode(),
                condition,
            )
        )

    def credentials(self) -> Abuse:
        right = self.known.key
        wrong = self.random.choice(
            (
                b"Bearer " + right[:-1].encode(), b"Bearer " + right.encode() + b"x", b"bearer  " + right.encode(), b"Basic " + base64.b64encode(self.canary),
                b"Bearer \xff\xfe", b"Bearer " + self.canary, b"Bearer", b"", b"Bearer " + b"x" * 20_000, b"Bearer sea_" + b"0" * 26 + b"_" + b"0" * 40,
                b"Digest username=x", b"Bearer " + right.swapcase().encode(), b"Bearer a b c", b"Bearer " + self.known.run.encode(),
            )
        )  # fmt: skip
        return self.sent(
            self.head("GET", self.random.choice(("/v1/me", "/v1/runs")), b"Authorization: " + wrong, key=False)
        )

    def numbers(self) -> Abuse:
        known = self.known
        target, name = self.random.choice(
            (
                ("/v1/runs", "page_size"), ("/v1/runs", "created_after"), ("/v1/runs", "created_before"), (f"/v1/trials/{known.trial}/logs", "after"),
                (f"/v1/trials/{known.trial}/artifacts", "execution"), ("/v1/events", "page_size"), (f"/v1/runs/{known.run}/logs", "after"),
            )
        )  # fmt: skip
        times = (
            "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T24:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00",
            "1767225600", "-1", "1e18", "99999999999999999999", "now", "0000-00-00T00:00:00Z", "2026-01-01T00:00:00.123456789123Z", "infinity",
        )  # fmt: skip
        value = self.random.choice((*HUGE, *times, self.text()))
        escaped = "".join(f"%{one:02x}" for one in value.encode())
        return self.sent(
            self.head(
                "GET",
                f"{target}?{name}={escaped}",
                self.random.choice(("Prefer: wait=0", "Prefer: wait=x", "Prefer: wait=" + "9" * 3_000 + "x", "X: y")),
            )
        )

    def references(self) -> Abuse:
        known = self.known
        wrong = self.random.choice(
            (
                known.run[:-1], known.run + "0", known.run[:12], known.trial, known.run.upper(), "0", "-1", "9" * 30, "9" * 300, "1e3", "run_", "run_" + "0" * 26,
                "run_" + "z" * 26, "%F0%9F%92%A9", "%20", "~", "null", ".", "..", "%2e", "hello%0a", "hello%0d%0aX:%20y", "0" * 400,
            )
        )  # fmt: skip
        template = self.random.choice(
            (
                "/v1/runs/{}", "/v1/runs/{}/events", "/v1/runs/{}/archive", "/v1/trials/{}", "/v1/trials/{}/logs", "/v1/trials/{}/artifacts/x", "/v1/tasks/{}",
                "/v1/tasks/{}/revisions", "/v1/revisions/{}", "/v1/evaluations/{}/sbom", "/v1/agents/{}",
            )
        )  # fmt: skip
        if self.random.random() < 0.3:
            template = self.random.choice(
                ("/v1/runs/{}/cancel", "/v1/runs/{}/retry", "/v1/trials/{}/cancel", "/v1/keys/{}/revoke")
            )
            return self.sent(self.head("POST", template.format(wrong), "Content-Length: 0"))
        return self.sent(self.head("GET", template.format(wrong)))

    def garbage(self) -> Abuse:
        raw = self.random.choice(
            (
                self.random.randbytes(self.random.choice((1, 100, 50_000))), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.random.randbytes(400),
                b"GET /\r\n", b"GET / HTTP/0.9\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 30_000, b"\n\n\n", b"HTTP/1.1 200 OK\r\n\r\n",
                b"GET\t/\tHTTP/1.1\r\n\r\n", b"\x00" * 1_000, self.canary, b"GET / HTTP/1.1\nHost: x\n\n", b"*1\r\n$4\r\nPING\r\n", b"",
            )
        )  # fmt: skip
        return self.sent(raw, half_close=True, silent=True)

    def negotiation(self) -> Abuse:
        field = self.random.choice(
            (
                "Accept: text/html", "Accept: " + "a/b," * 3_000, "Accept: ;;;", "Accept: text/event-stream;q=0", "Accept: application/xml", "Accept-Encoding: br;q=x",
                "Prefer: wait=1e9x", "Prefer: wait=-1", "Prefer: ,,,", "Prefer: wait=\u0663", "Accept-Charset: utf-7", "TE: trailers, deflate", f"Accept: {self.text()}/x",
                "If-Match: *", "If-Unmodified-Since: x", "Origin: null", "Access-Control-Request-Method: PUT", "X-HTTP-Method-Override: DELETE", "Date: x",
            )
        )  # fmt: skip
        return self.sent(self.head(self.random.choice(("GET", "OPTIONS", "HEAD")), self.get_target(), field.encode()))


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


def _cut(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]
