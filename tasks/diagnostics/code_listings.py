"""The code of a job's kernels as text, read by a builder when verdict and times stand: information, no evidence.

The builder runs nothing of the submission. It reads what build and calls have left in the kernel's folder, which was
written by the submission's own processes; so its word is bounded and cleaned here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from backends.code_listings import Found, Lacking
from backends.triton import cache
from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import KernelType
from domain.listing import Form, Listing, NoListing, pack
from domain.result import Status
from tasks.builds.build_session import deadline_in
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.worker_context import WorkerContext

READ_S = 20.0
"""Out of watch.SLACK_S, for each of the two kernels."""
MAX_KEPT_BYTES = 1 << 20
"""Of one kernel's texts, compressed."""
_NAME_CHARS, _TOLD_CHARS = 64, 256

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""But tab and newline: escape sequences among them, which a terminal would obey."""
_IN_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def look_at_code(
    contender: KernelRun, forms: Iterable[Form], bench: WorkerContext, cancelled: Callable[[], bool]
) -> None:
    """Notes for each form at least one entry, if only the reason why there is nothing. Raises JobCancelled.

    Of kernels that Triton compiled at a call, what their machine code needs is noted too, asked for or not.
    """
    wanted = list(forms)
    kept: list[Listing | NoListing] = [NoListing(form, "the kernel was not compiled") for form in wanted]
    if has_code(contender, wanted):
        kept = _read(contender, wanted, bench, cancelled, with_needs=_compiled_at_calls(contender))
    contender.listings = kept if wanted else None


def has_code(contender: KernelRun, forms: Sequence[Form]) -> bool:
    """Whether there is something to look at."""
    return contender.was_compiled and (bool(forms) or _compiled_at_calls(contender))


def _compiled_at_calls(contender: KernelRun) -> bool:
    # By os.path: where the folder has been closed to us, there is none.
    there = os.path.isdir(contender.folder / cache.FOLDER)
    return there and "variants" not in contender.facts


def _read(
    contender: KernelRun, wanted: list[Form], bench: WorkerContext, cancelled: Callable[[], bool], *, with_needs: bool
) -> list[Listing | NoListing]:
    session = None
    try:
        session = bench.session(contender.folder, gpu=False, deadline=deadline_in(READ_S), cancelled=cancelled)
        told = session.code(wanted)
    except (KernelFault, InfrastructureFault) as fault:
        late = isinstance(fault, KernelFault) and fault.status is Status.TIMEOUT
        reason = f"reading it took more than {READ_S:g} s" if late else f"reading it failed: {_plain(contender, fault)}"
        return [NoListing(form, reason) for form in wanted]
    finally:
        if session is not None:
            session.close()
    if with_needs and told.kernels:
        kernels = contender.facts.get("kernels")
        contender.facts["kernels"] = [*(kernels if isinstance(kernels, list) else []), *told.kernels]
    return _kept(contender, wanted, told.texts)


def _kept(contender: KernelRun, wanted: list[Form], told: list[Found | Lacking]) -> list[Listing | NoListing]:
    kept: list[Listing | NoListing] = []
    names: set[str] = set()
    left = MAX_KEPT_BYTES
    for one in sorted((each for each in told if each.form in wanted), key=lambda each: wanted.index(each.form)):
        kernel = _plain(contender, one.kernel)
        if isinstance(one, Lacking):
            kept.append(NoListing(one.form, _plain(contender, one.reason), kernel))
            continue
        text = _cleaned(contender, one.text)
        packed = pack(text)
        if len(packed) > left:
            told_why = (
                f"the code of one kernel may take {MAX_KEPT_BYTES >> 20} MiB, compressed: ask for fewer artifacts"
            )
            kept.append(NoListing(one.form, told_why, kernel))
            continue
        left -= len(packed)
        name = _name(kernel, one.form, names)
        names.add(name)
        variant = _plain(contender, one.variant) if one.variant is not None else None
        size = len(text.encode(errors="replace"))
        kept.append(Listing(name, kernel, one.form, size, packed, one.truncated, variant))
    there = {one.form for one in kept}
    return kept + [NoListing(form, _why_none(contender, form)) for form in wanted if form not in there]


def _name(kernel: str, form: Form, taken: set[str]) -> str:
    stem = _IN_NO_NAME.sub("_", kernel)[:_NAME_CHARS].strip("._-") or "kernel"
    numbered = (f"{stem}{f'-{number}' if number > 1 else ''}.{form}" for number in range(1, len(taken) + 2))
    return next(name for name in numbered if name not in taken)


def _why_none(contender: KernelRun, form: Form) -> str:
    """Of a form that nothing in the kernel's folder has."""
    kernel_type, facts = contender.kernel.kernel_type, contender.facts
    if form.of_triton and kernel_type in (KernelType.CUDA, KernelType.TORCH_CUDA):
        return f"{form} is one of Triton's stages, and this is a kernel of type {kernel_type}: ask for ptx or sass"
    if facts.get("interpreted"):
        return "interpreted on a worker without a GPU, so never compiled: send it to one that has a GPU (`gpu`)"
    if contender.fault is not None:
        return "nothing was compiled before the job ended, or what was lies elsewhere"
    return (
        f"its build and its calls have left no code of its own with {form}: what torch and its libraries bring along "
        "is not told of"
    )


def _cleaned(contender: KernelRun, text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", contender.redact_paths(text))


def _plain(contender: KernelRun, told: Any) -> str:
    """One short line."""
    return " ".join(_cleaned(contender, str(told)).split())[:_TOLD_CHARS]
