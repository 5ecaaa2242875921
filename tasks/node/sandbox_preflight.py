"""What holds the submissions of a worker, looked at before it begins."""

from __future__ import annotations

from domain.settings import settings
from sandbox.isolation import layer_probe
from tasks.node.private_dir import UnsafeFolder, make_private
from tasks.node.scratch_dir import BenchFolder


def held(*, gpu: bool) -> layer_probe.Layers:
    """The layers that are there.

    Raises SystemExit where one that SANDBOX requires does not hold, or another user can change STATE_DIR.
    """
    try:
        make_private(settings().state_dir, "STATE_DIR")
        # A folder with a lock: if this process is killed meanwhile, the next owner of one removes it.
        folder = BenchFolder(settings().state_dir / "work")
    except (UnsafeFolder, OSError) as error:
        raise SystemExit(f"{error}; STATE_DIR is the folder (docs/settings.md)") from error
    try:
        found = layer_probe.probe_layers(folder.path, gpu=gpu)
    except layer_probe.CannotConfine as error:
        raise SystemExit(f"{error}") from error
    finally:
        folder.close()
    lacking = layer_probe.missing(found, settings().sandbox)
    if lacking:
        told = "; ".join(f"{name} ({why})" for name, why in lacking.items())
        raise SystemExit(f"SANDBOX requires what does not hold here: {told}. docs/security.md says what each needs")
    return found
