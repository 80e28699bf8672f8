"""A trial's spec as Harbor's TrialConfig and as the variables of its child. Pure.

The config is sparse: what is not said keeps Harbor's default, and a full dump would pin its retry rules. Agent secrets
stand in it as `${NAME}` templates whose values only the child's environment has, under a name that no pack can guess,
for Harbor writes the config to disk and lets task.toml read any variable of its process by name.
"""

from pathlib import Path
from typing import Any

from workers.dispatcher.harness.model import TrialSpec
from workers.dispatcher.harness.server import environment

TRIAL = "trial"
"""The name of Harbor's trial and of its folder in the scratch folder."""
TRANSFER, HOME, TEMPORARY = ".transfer", ".home", ".tmp"
FOLDERS = (TRANSFER, HOME, TEMPORARY, TRIAL)
"""What the child may write in: they lie in the scratch folder, which is the worker's."""


def trial_folder(spec: TrialSpec) -> Path:
    return spec.scratch / TRIAL


def first_frame(spec: TrialSpec, *, nonce: str, network_modes: list[str], switches_network: bool) -> dict[str, Any]:
    """What a child is told first; its fields are described in the overlay's child.py. `nonce`: unguessable hex."""
    private = {f"SEATRIAL_AGENT_{nonce}_{name}": value for name, value in spec.agent.environment.items()}
    base = environment(spec.scratch / HOME) | {"TMPDIR": str(spec.scratch / TEMPORARY)}
    return {
        "trial": spec.trial_uuid,
        "config": trial_config(spec, nonce),
        "environment": spec.variables | base | private,
        "variables": sorted(spec.variables),
        "folder": str(spec.scratch),
        "own": [str(spec.scratch / name) for name in FOLDERS],
        "reads": [str(path) for path in (spec.task_folder, spec.agent.bundle) if path is not None],
        "transfer": str(spec.scratch / TRANSFER),
        "bundle": str(spec.agent.bundle) if spec.agent.bundle else None,
        "network_modes": network_modes,
        "switches_network": switches_network,
    }


def trial_config(spec: TrialSpec, nonce: str) -> dict[str, Any]:
    agent, deadlines, resources = spec.agent, spec.deadlines, spec.resources
    settings = dict(agent.settings)
    if agent.version is not None:
        settings["version"] = agent.version
    kind = "RemoteEnvironment" if spec.sandbox == "runtime" else "NoEnvironment"
    return _said(
        task={"path": str(spec.task_folder)},
        trial_name=TRIAL,
        trials_dir=str(spec.scratch),
        # The image is built already: what bounds a start is the worker's own deadline, not the pack's build time.
        environment_build_timeout_multiplier=1_000_000.0,
        agent=_said(
            name=agent.name if agent.import_path is None else None,
            import_path=agent.import_path,
            model_name=agent.model,
            kwargs=settings,
            env={name: f"${{SEATRIAL_AGENT_{nonce}_{name}}}" for name in agent.environment},
            override_timeout_sec=deadlines.agent,
            override_setup_timeout_sec=deadlines.agent_setup,
        ),
        environment=_said(
            import_path=f"seatrial_harness.environment:{kind}",
            override_cpus=resources.cpus,
            override_memory_mb=resources.memory_mb,
            override_storage_mb=resources.storage_mb,
        ),
        verifier=_said(
            import_path="seatrial_harness.verifier:SeatrialVerifier",
            override_timeout_sec=deadlines.verify,
            disable=not spec.verify,
        ),
    )


def _said(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != {}}
