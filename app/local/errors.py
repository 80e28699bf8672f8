"""What can keep a local installation from starting. Each message is one sentence that names the cause and the remedy."""


class LocalError(Exception):
    """Something on this machine is missing or in the way. The message says what, and what to do."""


class PortTaken(LocalError):
    """Another program listens on the port. Choose another one by the setting that the message names, or stop the program."""


class StoreInUse(LocalError):
    """Another process holds this data folder. Use that one, stop it, or choose another home with SEATRIAL_HOME."""


class StoreUnusable(LocalError):
    """The data folder cannot be used as it is: another version wrote it, or its owner or modes are wrong."""


class ServerFailed(LocalError):
    """A server that we started ended or did not get ready. The message gives the last line of its log and the log's path."""


class NoSpace(LocalError):
    """Too little free disk. Free some, or choose a home on another disk with SEATRIAL_HOME."""


class ToolMissing(LocalError):
    """A program or package that the job needs is not installed. The message says how to get it."""


class EngineUnavailable(LocalError):
    """No container engine answers, and none could be started. Install or start Docker, or set SEATRIAL_DOCKER_HOST."""


class EngineForbidden(EngineUnavailable):
    """The engine's socket refuses this user. Add the user to the socket's group and log in again."""


class EngineInstallFailed(EngineUnavailable):
    """The system's package manager could not install a container engine. The message gives its last line."""


class BaseImageUnavailable(LocalError):
    """A base image can neither be pulled nor be made on this machine."""


class AlreadyRunning(LocalError):
    """A server of this home is running. Use it, or stop it with `seatrial down`."""


class NotRunning(LocalError):
    """No server of this home is running. Start one with `seatrial up`."""
