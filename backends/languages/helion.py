"""Helion: it writes Triton kernels, which Triton compiles and caches."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from backends.languages.language import Around, Language, Unfollowed

NO_MULTIPROCESSORS = "TODO: implement for other devices"
"""Helion's error where it counts a host's multiprocessors, for a grid of persistent programs."""
SEARCHES = "Helion searches for a configuration on the GPU: give @helion.kernel one, config=Config(...)"


@functools.cache
def search_on_a_gpu() -> None:
    """Has a search time its configurations in this process, as others that a submission starts see no GPU.

    Has one without a GPU say so; by itself it fails an assertion without a text.
    """
    torch = importlib.import_module("torch")
    bound = importlib.import_module("helion.runtime.kernel").BoundKernel
    autotune = bound.autotune

    def search(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.cuda.is_available():
            raise RuntimeError(SEARCHES)
        kernel.settings.autotune_benchmark_subprocess = False
        return autotune(kernel, *args, **kwargs)

    bound.autotune = search


def pretend(arch: str, around: Around) -> None:
    """Leaves a search for a configuration to the card: times measured here would say nothing.

    Helion reads the number of multiprocessors whatever the source is, by torch's interface of devices for a product. It
    refuses no source for a guess.
    """
    kernel = importlib.import_module("helion.runtime.kernel")
    runtime: Any = importlib.import_module("helion.runtime")
    interface: Any = importlib.import_module("torch._dynamo.device_interface").CudaInterface
    properties = importlib.import_module("torch").cuda.get_device_properties().unnoted()

    def search(*args: Any, **kwargs: Any) -> Any:
        raise Unfollowed(SEARCHES)

    def get_num_sm(device: Any, *, reserved_sms: int = 0) -> Any:
        return max(properties.multi_processor_count - reserved_sms, 1)

    kernel.BoundKernel.autotune = search
    runtime.get_num_sm = get_num_sm
    interface.get_device_properties = staticmethod(lambda device=None: properties)


LANGUAGE = Language(
    name="helion",
    title="Helion",
    module="helion",
    package="helion",
    caches={"HELION_CACHE_DIR": "helion"},
    refusals=("helion.exc.",),
    no_device=(SEARCHES, NO_MULTIPROCESSORS),
    preloaded=True,
    before_import=search_on_a_gpu,
    pretend=pretend,
)
