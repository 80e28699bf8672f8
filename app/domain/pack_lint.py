"""What a pack's author should know, though it stops nothing. Pure.

A warning is a likely mistake. What most packs leave at its default, or chose, is a note: the score's validity record says it
of every trial, so that nobody has to be told at every build.
"""

from app.domain.pack import Finding, FromImage, NetworkMode, Pack, Severity, VerifierMode
from app.domain.pack_files import COMPOSE, HARBOR_COMPOSE


def lint(pack: Pack, files: frozenset[str]) -> tuple[Finding, ...]:
    """Warnings, those of `parse` (keys without effect) first, then notes."""
    warnings, notes = list(pack.warnings), list[Finding]()

    def warn(field: str, code: str, message: str) -> None:
        warnings.append(Finding(field, code, message))

    def note(field: str, code: str, message: str) -> None:
        notes.append(Finding(field, code, message, Severity.NOTE))

    if isinstance(pack.image, FromImage) and "@sha256:" not in pack.image.reference:
        warn("environment.docker_image", "unpinned_image", "names no digest, so it can change; pin it with `@sha256:…`")
    if isinstance(pack.image, FromImage) and "environment/Dockerfile" in files:
        warn("environment/Dockerfile", "unused_dockerfile", "is not built, because docker_image is set")
    for name in COMPOSE:
        if name != HARBOR_COMPOSE and f"environment/{name}" in files:
            warn(f"environment/{name}", "unused_compose", f"is not read by Harbor; it looks for {HARBOR_COMPOSE}")
    phases = [step.agent for step in pack.steps] or [pack.agent]
    if pack.agent.timeout_seconds is None and any(phase.timeout_seconds is None for phase in phases):
        note("agent.timeout_sec", "no_agent_timeout", "is not set, so only the trial's total deadline ends an agent")
    for field in ("memory_mb", "cpus"):
        if getattr(pack.environment, field) is None:
            note(f"environment.{field}", "no_limit", "is not set, so the installation's default limit holds")
    if pack.verifier.mode is VerifierMode.SHARED and not pack.steps:
        note(
            "verifier.environment_mode",
            "shared_verifier",
            "is shared: what the agent left is in the verifier's sandbox; `separate` makes a score worth more",
        )
    if pack.agent_network.mode is NetworkMode.PUBLIC:
        note("environment.network_mode", "public_network", "is public: the agent may find the solution on the internet")
    for variable in pack.variables:
        if variable.default is None:
            warn(f"env.{variable.name}", "needs_variable", f"needs the variable {variable.source} where the pack runs")
    if not pack.steps and "solution/solve.sh" not in files:
        warn(
            "solution/solve.sh", "no_solution", "is missing, so the oracle agent cannot prove that the task is solvable"
        )
    return (*warnings, *notes)


def warnings_of(pack: Pack, files: frozenset[str]) -> tuple[str, ...]:
    """What is said whenever the pack is built."""
    return tuple(str(one) for one in lint(pack, files) if one.severity is Severity.WARNING)
