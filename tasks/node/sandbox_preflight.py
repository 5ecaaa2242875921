"""Checks a worker's sandbox layers before it starts."""

from __future__ import annotations

from domain.settings import settings
from sandbox.isolation import layer_probe
from tasks.node.private_dir import UnsafeFolder, make_private
from tasks.node.scratch_dir import ScratchDir


def probe_sandbox(*, gpu: bool) -> layer_probe.Layers:
    """Probe the sandbox layers and return them.

    Raises SystemExit if a layer that SANDBOX requires does not hold, or if another user can change STATE_DIR.
    """
    try:
        make_private(settings().state_dir, "STATE_DIR")
        # A locked folder: if this process is killed, the next owner of a folder removes it.
        folder = ScratchDir(settings().state_dir / "work")
    except (UnsafeFolder, OSError) as error:
        raise SystemExit(f"{error}; STATE_DIR is the folder (docs/settings.md)") from error
    try:
        layers = layer_probe.probe_layers(folder.path, gpu=gpu)
    except layer_probe.CannotConfine as error:
        raise SystemExit(f"{error}") from error
    finally:
        folder.close()
    missing = layer_probe.missing(layers, settings().sandbox)
    if missing:
        reasons = "; ".join(f"{name} ({why})" for name, why in missing.items())
        raise SystemExit(f"SANDBOX requires layers that do not hold: {reasons}. docs/security.md says what each needs")
    return layers
