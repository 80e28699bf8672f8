"""A sandbox's spec as the engine's container, and the engine's container as facts. Pure."""

from collections.abc import Mapping
from typing import Any

from workers.dispatcher.runtimes.port import Effective, Labels, PolicyUnsupported, SandboxSpec

LABEL = "seatrial."
LINUX_CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
)
"""What a pack's root needs to install, own and drop to users. Not in it: raw sockets, device nodes, chroot, ptrace."""

# The first process. Being process 1 it cannot be killed from inside, but by signals that bash would catch: it ignores
# those, so that no agent can end its sandbox and pass for an infrastructure failure. It ends when its input closes or
# its time is up. A subshell now and then reaps orphans (bash waits for all children after a fork; SIGCHLD is blocked
# here), but not when the process limit is nearly reached, for then a failed fork would end it.
FIRST_PROCESS = r"""
trap '' HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE TERM XCPU XFSZ VTALRM PROF SYS
shopt -s nullglob
while ((left = $0 - SECONDS, left > 0)); do
  IFS= read -r -t $((left < 2 ? left : 2)) _
  (($? != 1)) || exit 0
  used=
  for file in /sys/fs/cgroup/pids.current /sys/fs/cgroup/pids/pids.current; do
    { read -r used <"$file"; } 2>/dev/null && break
  done
  if [[ -z $used ]]; then all=(/proc/[0-9]*); used=${#all[@]}; fi
  ((used + 8 > $1)) || (:)
done
"""


def labels_as_text(labels: Labels, name: str) -> dict[str, str]:
    return {
        LABEL + "instance": labels.instance,
        LABEL + "team": labels.team,
        LABEL + "run": labels.run,
        LABEL + "trial": labels.trial,
        LABEL + "execution": labels.execution,
        LABEL + "expires": f"{labels.expires_at:.0f}",
        LABEL + "sandbox": name,
    }


def labels_of(text: Mapping[str, str]) -> Labels:
    def of(name: str) -> str:
        return text.get(LABEL + name, "")

    expires = of("expires")
    return Labels(
        instance=of("instance"),
        team=of("team"),
        run=of("run"),
        trial=of("trial"),
        execution=of("execution"),
        expires_at=float(expires) if expires.isdigit() else 0.0,
    )


def container_config(spec: SandboxSpec, network: str) -> dict[str, Any]:
    """The body of the engine's *create* call. `network`: the name of the network to join, or `none`."""
    host: dict[str, Any] = {
        "AutoRemove": True,
        "NetworkMode": network,
        "CapDrop": ["ALL"],
        "CapAdd": list(LINUX_CAPABILITIES),
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": spec.pids,
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "OomScoreAdj": 500,
        "LogConfig": {"Type": "none"},
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
    }
    if spec.cpus:
        host["NanoCpus"] = int(spec.cpus * 1e9)
    if spec.memory_mb:
        host["Memory"] = host["MemorySwap"] = spec.memory_mb << 20
    config: dict[str, Any] = {
        "Image": spec.image,
        "Entrypoint": [],
        "Cmd": ["bash", "-c", FIRST_PROCESS, str(max(1, int(spec.ttl_seconds))), str(spec.pids)],
        "User": "0:0",
        "Env": [f"{key}={value}" for key, value in spec.environment.items()],
        "Labels": labels_as_text(spec.labels, spec.name),
        "HostConfig": host,
        "AttachStdin": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Healthcheck": {"Test": ["NONE"]},
    }
    if spec.workdir:
        config["WorkingDir"] = spec.workdir
    return config


def effective(spec: SandboxSpec, found: dict[str, Any], seccomp: str) -> Effective:
    """Read back what the engine holds; a limit that it dropped on the way is refused with PolicyUnsupported.

    `found`: the engine's own description of the container. `seccomp`: its default profile's name.
    """
    host = found["HostConfig"]
    networks = set(found["NetworkSettings"]["Networks"])
    memory, nano, pids = host.get("Memory") or 0, host.get("NanoCpus") or 0, host.get("PidsLimit") or 0
    if bool(memory) != bool(spec.memory_mb) or bool(nano) != bool(spec.cpus) or bool(pids) != bool(spec.pids):
        raise PolicyUnsupported("the engine dropped a limit of cpus, memory or processes")
    if (networks == {"none"}) != (spec.network.mode == "no-network"):
        raise PolicyUnsupported(f"the engine did not apply network_mode {spec.network.mode!r}")
    security: list[str] = host.get("SecurityOpt") or []
    unenforced = ("storage_mb",) if spec.storage_mb else ()
    if spec.network.mode == "public":
        unenforced += ("private_addresses",)  # blocking them takes the host's firewall, which is not ours
    return Effective(
        network=spec.network.mode,
        cpus=nano / 1e9 if nano else None,
        memory_mb=memory >> 20 if memory else None,
        pids=pids or None,
        linux_capabilities=tuple(sorted(c.removeprefix("CAP_") for c in host.get("CapAdd") or ())),
        no_new_privileges="no-new-privileges" in security,
        seccomp=next((o.removeprefix("seccomp=") for o in security if o.startswith("seccomp=")), seccomp),
        unenforced=unenforced,
    )
