"""Which runtime: the one that the setting `runtime` names, among those that are installed."""

from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points

from app.settings import Settings, SettingsInvalid
from workers.dispatcher.runtimes.port import Runtime

GROUP = "seatrial.runtimes"


async def open_runtime(settings: Settings) -> Runtime:
    """Open it. Raises SettingsInvalid when it is not installed, EngineUnavailable when its engine does not answer."""
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if settings.runtime not in installed:
        raise SettingsInvalid(f"SEATRIAL_RUNTIME: there is no such runtime here. Known: {', '.join(sorted(installed))}")
    opened: Callable[[Settings], Awaitable[Runtime]] = installed[settings.runtime].load()
    return await opened(settings)
