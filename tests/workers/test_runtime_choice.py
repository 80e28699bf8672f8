"""Which runtime a worker opens is a setting, and any that is installed can be named."""

from pathlib import Path

import pytest

from app.settings import Settings, SettingsInvalid
from workers.dispatcher.runtimes.choose import open_runtime
from workers.dispatcher.runtimes.docker import DockerRuntime


async def test_docker_is_what_nothing_set_means(docker_host: str) -> None:
    runtime = await open_runtime(Settings(docker_host=docker_host))
    assert isinstance(runtime, DockerRuntime)
    await runtime.close()


async def test_a_runtime_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(SettingsInvalid, match=r"SEATRIAL_RUNTIME: .*docker"):
        await open_runtime(Settings(runtime="no-such"))


async def test_a_plugins_runtime_is_opened_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe-1.dist-info").mkdir()
    (tmp_path / "probe-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1\n")
    entry = "[seatrial.runtimes]\nprobe = probe_runtime:open_runtime\n"
    (tmp_path / "probe-1.dist-info" / "entry_points.txt").write_text(entry)
    (tmp_path / "probe_runtime.py").write_text("async def open_runtime(settings):\n    return ('probe', settings)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(runtime="probe")
    opened: object = await open_runtime(settings)
    assert opened == ("probe", settings)
