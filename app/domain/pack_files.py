"""Which files a pack must have, and what of it Seatrial cannot run yet. Pure."""

from app.domain.pack import ErrorCode, FromDockerfile, FromImage, Pack, VerifierMode, VerifierPhase
from app.domain.pack_table import Problems

COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
HARBOR_COMPOSE = COMPOSE[0]
"""The only name that Harbor reads."""


def image(docker_image: str | None) -> FromDockerfile | FromImage:
    """A prebuilt image wins over a Dockerfile, as in Harbor."""
    return FromDockerfile() if docker_image is None else FromImage(docker_image)


def check(pack: Pack, files: frozenset[str], problems: Problems) -> None:
    def need(path: str, why: str) -> None:
        if path not in files:
            problems.add(path, ErrorCode.MISSING_FILE, f"is missing: {why}")

    if f"environment/{HARBOR_COMPOSE}" in files:
        problems.add(f"environment/{HARBOR_COMPOSE}", ErrorCode.UNSUPPORTED, "Seatrial does not run compose packs yet")
    elif isinstance(pack.image, FromDockerfile):
        need("environment/Dockerfile", "the pack names no docker_image, so there must be one")
    if not pack.steps:
        need("instruction.md", "it tells the agent what to do")
        _verifier(pack.verifier, VerifierMode.SHARED, "verifier", ("tests",), files, problems)
        if not any(f"tests/{name}" in files for name in ("test.sh", "Dockerfile", HARBOR_COMPOSE)) and not _has_image(
            pack.verifier
        ):
            need("tests/test.sh", "it says whether the task is solved")
    for place, step in enumerate(pack.steps):
        folder = f"steps/{step.name}"
        need(f"{folder}/instruction.md", "it tells the agent what to do in this step")
        if f"{folder}/tests/test.sh" not in files and "tests/test.sh" not in files and not _has_image(step.verifier):
            need(f"{folder}/tests/test.sh", "it says whether this step is solved")
        tests = (f"{folder}/tests", "tests")
        default = pack.verifier.mode or VerifierMode.SHARED
        _verifier(step.verifier, default, f"steps[{place}].verifier", tests, files, problems)
    services = [
        (f"verifier.collect[{place}].service", hook.service) for place, hook in enumerate(pack.verifier.collect)
    ]
    services += [(f"artifacts[{place}].service", item.service) for place, item in enumerate(pack.artifacts)]
    for field, service in services:
        if service not in (None, "main"):
            problems.add(field, ErrorCode.UNSUPPORTED, "Seatrial does not run compose packs yet")


def _has_image(verifier: VerifierPhase) -> bool:
    return verifier.environment is not None and verifier.environment.docker_image is not None


def _verifier(
    verifier: VerifierPhase,
    default: VerifierMode,
    field: str,
    folders: tuple[str, ...],
    files: frozenset[str],
    problems: Problems,
) -> None:
    """A separate verifier runs in a fresh sandbox of the pack's own image; one with another image needs a second build."""
    if (verifier.mode or default) is not VerifierMode.SEPARATE:
        return
    if _has_image(verifier):
        message = "Seatrial does not run a verifier with an image of its own yet"
        problems.add(f"{field}.environment.docker_image", ErrorCode.UNSUPPORTED, message)
    for folder in folders:
        for name in ("Dockerfile", HARBOR_COMPOSE):
            if f"{folder}/{name}" in files:
                message = "Seatrial does not build a separate verifier's image yet"
                problems.add(f"{folder}/{name}", ErrorCode.UNSUPPORTED, message)
