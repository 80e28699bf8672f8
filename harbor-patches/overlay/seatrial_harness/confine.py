"""A child's own user and its own view of the machine.

An agent's code runs in the child, on the worker's machine. The fork server is root where the worker is; a child gives that up
before any code of an agent has run. Its user is nobody else's: of no account, and of no other child that lives. What it sees is
the system's programs, this environment and its own trial's folders: no home, no key, no engine's socket, no other trial, and of
the processes only its own. It holds no capability and can gain none.

The fork server puts a new root together once; a child adds its own folders in a mount namespace of its own, which the kernel
takes back when it ends. Measured: 1 ms a trial, the end included (a whole root for each child took 3).
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable

FIRST_USER, USERS = 1_900_000_000, 1 << 26
"""Numbers that no account has and no container engine hands out (they end below 1,879,048,192)."""
ENDER = FIRST_USER - 1
"""Whoever ends a user's processes has this number beside the user's, so that none of these may signal it."""
LISTINGS, LISTING_SECONDS = 200, 0.01
PROCESSES = 1024
"""That one child may have: more would be felt by the worker and the other trials."""

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/nix/store")
DEVICES = ("null", "zero", "full", "random", "urandom")
ELSEWHERE = ("/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/nsswitch.conf")
"""Files that may be links out of /etc, and that a child needs in order to call a model."""
OURSELVES = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)))
"""This environment and the Python that it was made of."""
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
BASE = "/sys"
"""Where the new root is put together: a folder that every machine has, and that no trial has files in."""

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 4, 24, 38, 47, 4
CAPABILITIES = 64

libc = ctypes.CDLL(None, use_errno=True)


def prepare() -> None:
    """Put the new root together, once, in the fork server's own mount namespace. Raises OSError where that is not allowed."""
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("seatrial", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=0755")
    shown: list[str] = []
    for path in (*SYSTEM, *OURSELVES):
        _show(path, shown)
    for path in ELSEWHERE:
        if os.path.exists(real := os.path.realpath(path)):
            _show(real, shown)
    os.makedirs(f"{BASE}/proc")
    _mount_processes()
    os.makedirs(f"{BASE}/dev")
    for name in DEVICES:
        _place(f"/dev/{name}")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{BASE}/dev/{name}")
    for path in TEMPORARY:
        os.makedirs(BASE + path, exist_ok=True)


def enter(user: int, *, own: Iterable[str], folder: str, readable: Iterable[str], temporary: str) -> None:
    """Become `user`, who sees `folder`, `readable` and the system, and may write in the folders `own` alone.

    `own` lie directly in `folder`, which stays root's: so none of them can be replaced by a link that the worker would follow.
    `temporary`: one of them, which is also /tmp. Raises OSError.
    """
    os.chmod(folder, 0o711)
    for path in own:
        os.chown(path, user, user, follow_symlinks=False)
    readable = tuple(readable)
    os.umask(0o066)  # nobody lists the folders on the way, whose names are other trials'
    os.unshare(os.CLONE_NEWNS)
    for path in replaceable(folder, *readable, *OURSELVES):
        _mount(temporary, BASE + path, None, MS_BIND)
    _bind(folder, writable=True)
    for path in readable:
        _bind(path, writable=False)
    _become(user)


def replaceable(*shown: str) -> list[str]:
    """The folders of TEMPORARY that a child can have as its own, because nothing that it must see lies below them."""
    return [path for path in TEMPORARY if not any(one.startswith(f"{path}/") for one in shown)]


def forget(folder: str) -> None:
    """Remove the place in the new root where a child saw its folder; the mount itself went with the child."""
    with contextlib.suppress(OSError):
        os.rmdir(BASE + folder)


def _show(path: str, shown: list[str]) -> None:
    """Make `path` readable, unless it is seen already or not there."""
    if any(path == seen or path.startswith(f"{seen}/") for seen in shown):
        return
    if os.path.islink(path) and os.path.dirname(path) == "/":
        os.symlink(os.readlink(path), BASE + path)
    elif os.path.exists(path):
        _bind(path, writable=False)
        shown.append(path)


def _bind(path: str, *, writable: bool) -> None:
    target = _place(path)
    _mount(None, target, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | (0 if writable else MS_RDONLY))


def _place(path: str) -> str:
    """Bind `path` to its own place in the new root."""
    target = BASE + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444))
    _mount(path, target, None, MS_BIND | MS_REC)
    return target


def _mount_processes() -> None:
    """/proc with the child's own processes alone; before Linux 5.8 the option counts for the namespace as a whole."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    try:
        _mount("proc", f"{BASE}/proc", "proc", flags, "hidepid=2")
    except OSError:
        _mount("proc", f"{BASE}/proc", "proc", flags)


def _become(user: int) -> None:
    """Without the right to leave it, and in a kernel that gives no new user namespace to whoever is in it, this root holds."""
    os.chroot(BASE)
    os.chdir("/")
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in range(CAPABILITIES):
        if libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # there are no more
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # its /proc/self is its own; to anybody else it stays closed


def end_all_of(user: int) -> bool:
    """Kill every process of a user in this PID namespace; whether that was done.

    By one system call, so that nothing that forks meanwhile escapes, and without looking first whether there is any: what forks
    and ends without pause is in no list. Whoever sends it is nobody's whom the user could kill before.
    """
    try:
        pid = os.fork()
    except OSError:  # they may be what has used up all processes
        return _end_listed(user)
    if pid == 0:
        try:
            os.setresuid(ENDER, user, ENDER)
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:  # there was none
            pass
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return status == 0 or _end_listed(user)


def _end_listed(user: int) -> bool:
    """The same without a process of our own: one by one, again and again until there is none in the list."""
    for _ in range(LISTINGS):
        if not (found := _all_of(user)):
            return True
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LISTING_SECONDS)
    return False


def _all_of(user: int) -> list[int]:
    """The live processes of a user; what has ended and was not waited for is none."""
    found: list[int] = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat(follow_symlinks=False).st_uid == user:
                with open(f"/proc/{entry.name}/stat") as file:
                    if file.read().rpartition(") ")[2][:1] not in "ZX":
                        found.append(int(entry.name))
    return found


def refusal(folder: str) -> str | None:
    """Prepare, and try it in a child. Why children cannot be confined on this machine; None when they can."""
    try:
        prepare()
    except OSError as error:
        return str(error)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            enter(FIRST_USER, own=(), folder=folder, readable=(), temporary=folder)
            for name in (os.__file__, __file__):  # the library, and this environment
                open(name).close()
            os._exit(0)
        except OSError as error:
            os.write(writing, str(error).encode()[:1000])
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    return None if status == 0 else said or f"the trial of it ended with {status}"


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _call("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3], what=target)


def _call(name: str, *arguments: object, what: str = "") -> None:
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name} {what}: {os.strerror(number)}")
