"""The `[environment]` table, and what it shares with phases: networks, variables, health checks. Pure."""

import ipaddress
import re

from app.domain.pack import (
    Environment,
    ErrorCode,
    Header,
    Healthcheck,
    McpServer,
    Network,
    NetworkMode,
    Variable,
)
from app.domain.pack_table import Table

TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
EMBEDDED = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-([^}]*))?\}")
"""Headers, unlike variables, may hold a template among other text."""
VARIABLE = re.compile(r"[^=\0]+")
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG])\s*", re.IGNORECASE)
KIBIBYTES = {"K": 1, "M": 1024, "G": 1024 * 1024}
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""Of a host name: RFC 1123, section 2.1."""
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110, section 5.6.2."""
CREDENTIAL = re.compile(r"key|secret|token(?!s)|password|credential|auth|^(set-)?cookie$", re.IGNORECASE)
MEBIBYTES_MAX = 2**31


def read(table: Table | None) -> Environment:
    if table is None:
        return Environment()
    timeout = table.number("build_timeout_sec")
    environment = Environment(
        network=baseline(table),
        build_timeout_seconds=600.0 if timeout is None else timeout,
        docker_image=table.text("docker_image", empty=False),
        os=_os(table),
        cpus=table.number("cpus"),
        memory_mb=_mebibytes(table, "memory_mb", "memory"),
        storage_mb=_mebibytes(table, "storage_mb", "storage"),
        gpus=_gpus(table),
        gpu_types=table.texts("gpu_types"),
        env=variables(table, "env"),
        mcp_servers=table.each("mcp_servers", _mcp_server),
        skills_dir=table.text("skills_dir"),
        healthcheck=healthcheck(table),
        workdir=table.text("workdir", empty=False),
    )
    if table.raw("tpu") is not None:
        table.wrong("tpu", ErrorCode.UNSUPPORTED, "Seatrial has no TPUs to give")
    table.close()
    return environment


def network(table: Table) -> Network | None:
    """A phase's own policy, or None. Hosts belong to an allowlist alone."""
    mode = table.choice("network_mode", tuple(NetworkMode))
    given = "allowed_hosts" in table
    hosts = _hosts(table)
    if mode != NetworkMode.ALLOWLIST and (hosts or (given and mode is None)):
        table.wrong("allowed_hosts", ErrorCode.CONFLICT, "is only valid with network_mode = 'allowlist'")
    return None if mode is None else Network(NetworkMode(mode), hosts)


def baseline(table: Table) -> Network:
    """An environment's policy. `allow_internet`, of older packs, counts where nothing else is said."""
    allowed = table.boolean("allow_internet")
    if "network_mode" in table or "allowed_hosts" in table:
        mode = table.choice("network_mode", tuple(NetworkMode)) or NetworkMode.PUBLIC
        hosts = _hosts(table)
        if hosts and mode != NetworkMode.ALLOWLIST:
            table.wrong("allowed_hosts", ErrorCode.CONFLICT, "is only valid with network_mode = 'allowlist'")
        return Network(NetworkMode(mode), hosts)
    return Network(NetworkMode.NO_NETWORK if allowed is False else NetworkMode.PUBLIC)


def variables(table: Table, key: str) -> tuple[Variable, ...]:
    found: list[Variable] = []
    for name, value in table.pairs(key):
        if not VARIABLE.fullmatch(name) or "\0" in value:
            table.wrong(f"{key}.{name}", ErrorCode.VALUE, "cannot be an environment variable")
            continue
        template = TEMPLATE.fullmatch(value)
        if template is None:
            found.append(Variable(name, literal=value))
        else:
            found.append(Variable(name, source=template[1], default=template[2]))
    return tuple(found)


def healthcheck(table: Table) -> Healthcheck | None:
    inner = table.table("healthcheck")
    if inner is None:
        return None

    def seconds(key: str, default: float, *, zero: bool = False) -> float:
        value = inner.number(key, above=not zero)
        return default if value is None else value

    retries = inner.integer("retries", least=0, most=1_000_000)
    check = Healthcheck(
        command=inner.required_text("command"),
        interval_seconds=seconds("interval_sec", 5.0, zero=True),
        timeout_seconds=seconds("timeout_sec", 30.0),
        start_period_seconds=seconds("start_period_sec", 0.0, zero=True),
        start_interval_seconds=seconds("start_interval_sec", 5.0, zero=True),
        retries=3 if retries is None else retries,
    )
    inner.close()
    return check


def _os(table: Table) -> str:
    value = (table.text("os") or "linux").lower()
    if value == "windows":
        table.wrong("os", ErrorCode.UNSUPPORTED, "Seatrial runs Linux containers only")
    elif value != "linux":
        table.wrong("os", ErrorCode.VALUE, "must be linux or windows")
    return "linux"


def _gpus(table: Table) -> int:
    gpus = table.integer("gpus", least=0, most=1024) or 0
    if gpus:
        table.wrong("gpus", ErrorCode.UNSUPPORTED, "Seatrial has no GPUs to give yet")
    return gpus


def _mebibytes(table: Table, key: str, legacy: str) -> int | None:
    """`memory_mb = 4096`, or of older packs `memory = '4G'`. Both are allowed when they say the same."""
    size = table.integer(key, least=1, most=MEBIBYTES_MAX)
    value = table.raw(legacy)
    if value is None:
        return size
    if not isinstance(value, str):
        table.problems.warn(table.field(legacy), "ignored", f"is not a string and has no effect; use {key}")
        return size
    match = SIZE.fullmatch(value)
    old = int(float(match[1]) * KIBIBYTES[match[2].upper()]) // 1024 if match and len(match[1]) <= 20 else 0
    if not 1 <= old <= MEBIBYTES_MAX:
        table.wrong(legacy, ErrorCode.VALUE, "must be a size like '512M' or '4G'")
        return size
    if size is not None and size != old:
        table.wrong(legacy, ErrorCode.CONFLICT, f"is {old} MB, and {key} says {size}")
    return old


def _mcp_server(table: Table) -> McpServer:
    transport = table.choice("transport", ("sse", "stdio", "streamable-http", "http")) or "sse"
    server = McpServer(
        name=table.required_text("name"),
        transport="streamable-http" if transport == "http" else transport,
        url=table.text("url") or None,
        command=table.text("command") or None,
        args=table.texts("args"),
        headers=_headers(table),
    )
    if server.transport == "stdio":
        if server.command is None:
            table.wrong("command", ErrorCode.REQUIRED, "is required for the transport stdio")
        if server.headers:
            table.wrong("headers", ErrorCode.CONFLICT, "are of no use to the transport stdio")
    elif server.url is None:
        table.wrong("url", ErrorCode.REQUIRED, f"is required for the transport {server.transport}")
    table.close()
    return server


def _headers(table: Table) -> tuple[Header, ...]:
    found: list[Header] = []
    for name, value in table.pairs("headers"):
        field = f"headers.{name}"
        if not HEADER.fullmatch(name) or "\r" in value or "\n" in value:
            table.wrong(field, ErrorCode.VALUE, "is not an HTTP header")
        elif "${" in EMBEDDED.sub("", value):
            table.wrong(field, ErrorCode.VALUE, "holds a template that cannot be read")
        elif CREDENTIAL.search(name) and (
            ("${" not in value and value.strip()) or any(match[1] for match in EMBEDDED.finditer(value))
        ):
            table.wrong(
                field, ErrorCode.VALUE, "is a credential, so its value must be a `${VARIABLE}` without a default"
            )
        else:
            found.append(Header(name, value))
    return tuple(found)


def _hosts(table: Table) -> tuple[str, ...]:
    found: list[str] = []
    for place, entry in enumerate(table.texts("allowed_hosts")):
        host = _host(entry.strip().lower().rstrip("."))
        if host is None:
            table.wrong(
                f"allowed_hosts[{place}]",
                ErrorCode.VALUE,
                "must be a host name, `*.suffix`, an address or a CIDR block; no URL, port or path",
            )
        else:
            found.append(host)
    return tuple(found)


def _host(entry: str) -> str | None:
    """The entry in its one spelling, or None."""
    if "%" in entry:
        return None
    try:
        if "/" in entry:
            return ipaddress.ip_network(entry, strict=True).compressed
        return ipaddress.ip_address(entry).compressed
    except ValueError:
        pass
    name = entry.removeprefix("*.")
    if "/" in entry or not all(LABEL.fullmatch(label) for label in name.split(".")):
        return None
    if name != entry and re.fullmatch(r"[\d.]+", name):
        return None  # `*.10.0.0.1`
    return entry
