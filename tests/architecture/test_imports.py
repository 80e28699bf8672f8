"""What a process must not load: import costs are paid by those who use a library."""

import subprocess
import sys

import pytest

HEAVY = ("kubernetes_asyncio", "aioboto3", "botocore", "cyclonedx", "harbor", "litellm", "aiodocker")


def loaded(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`."""
    listing = f"{code}\nimport sys\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["app.http.serve", "app.boot", "app.bus.relay", "projections.main", "workers.foreman"]
)
def test_the_api_and_the_light_processes_load_no_heavy_library(module: str) -> None:
    assert loaded(f"import {module}").isdisjoint(HEAVY)


def test_nothing_of_ours_ever_loads_the_harness() -> None:
    every = "import workers.dispatcher.main, workers.builder.main, workers.attester.main, workers.reaper, workers.clock"
    assert {"harbor", "litellm"}.isdisjoint(loaded(every))


def test_the_command_line_loads_no_server_library() -> None:
    commands = "import app.cli, app.cli.run, app.cli.runs, app.cli.trials, app.cli.tasks, app.cli.events, app.cli.keys"
    assert {"asyncpg", "nats", "litestar", "uvicorn", *HEAVY}.isdisjoint(loaded(commands))


def test_the_domain_loads_only_the_standard_library_and_msgspec() -> None:
    modules = "agents evaluation events evidence execution failures pack pack_lint pack_parse policy refusal registry revision run statistics trial"
    found = loaded("\n".join(f"import app.domain.{module}" for module in modules.split()))
    ours = {name for name in found if name not in sys.stdlib_module_names and not name.startswith("_")}
    assert ours <= {"app", "msgspec", "typing_extensions"}  # the last one is msgspec's
