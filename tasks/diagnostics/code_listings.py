"""The code of a job's kernels as text, for information only: verdict and times are final before it is read.

A builder reads the files that build and calls left in the kernel's folder; it runs nothing of the submission. The
submission's own processes wrote those files, so this module bounds and cleans the builder's reply.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from backends.code_listings import CodeText, MissingText
from backends.languages.registry import LANGUAGES
from backends.triton import cache
from domain.fault import InfrastructureFault, KernelFault
from domain.kernel import KernelType
from domain.listing import Form, Listing, NoListing, pack
from domain.result import Status
from tasks.builds.build_session import deadline_in
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import KernelRun

READ_S = 20.0
"""Maximum seconds of reading for each of the two kernels; part of `attempt_monitor.SLACK_S`."""
MAX_PACKED_BYTES = 1 << 20
"""Maximum compressed bytes of one kernel's texts."""
_NAME_CHARS, _LINE_CHARS = 64, 256

_WITHOUT_TRITON = {KernelType.CUDA, KernelType.TORCH_CUDA, *(each.name for each in LANGUAGES if each.codes is not None)}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters except tab and newline, such as escape sequences that a terminal would obey."""
_IN_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def read_code(kernel_runs: Sequence[KernelRun], job: JobContext, end_runners: Callable[[], None]) -> None:
    """Record the code of every kernel. Runners must have ended before the referee reads the files that they leave.

    `end_runners` is called for that if there is anything to read. Raises JobCancelled.
    """
    if any(_has_code(kernel_run, job.request.artifacts) for kernel_run in kernel_runs):
        end_runners()
    for kernel_run in kernel_runs:
        _extract_code(kernel_run, job)


def _extract_code(kernel_run: KernelRun, job: JobContext) -> None:
    """Record at least one entry for each form, which may be the reason why there is no code. Raises JobCancelled.

    For kernels that Triton compiled at a call, also record the resources of their machine code, even without `forms`.
    """
    requested_forms = list(job.request.artifacts)
    listings: list[Listing | NoListing] = [NoListing(form, "the kernel was not compiled") for form in requested_forms]
    if _has_code(kernel_run, requested_forms):
        listings = _read(kernel_run, requested_forms, job, with_needs=_compiled_at_calls(kernel_run))
    kernel_run.diagnosis.listings = listings if requested_forms else None


def _has_code(kernel_run: KernelRun, forms: Sequence[Form]) -> bool:
    return kernel_run.was_compiled and (bool(forms) or _compiled_at_calls(kernel_run))


def _compiled_at_calls(kernel_run: KernelRun) -> bool:
    # os.path.isdir is false if the folder is no longer accessible to the referee.
    there = os.path.isdir(kernel_run.folder / cache.FOLDER)
    return there and "variants" not in kernel_run.facts


def _read(kernel_run: KernelRun, forms: list[Form], job: JobContext, *, with_needs: bool) -> list[Listing | NoListing]:
    session = None
    try:
        session = job.worker.session(
            kernel_run.folder, gpu=False, deadline=deadline_in(READ_S), cancelled=job.cancelled
        )
        reply = session.code(forms)
    except (KernelFault, InfrastructureFault) as fault:
        late = isinstance(fault, KernelFault) and fault.status is Status.TIMEOUT
        reason = (
            f"reading it took more than {READ_S:g} s" if late else f"reading it failed: {_plain(kernel_run, fault)}"
        )
        return [NoListing(form, reason) for form in forms]
    finally:
        if session is not None:
            session.close()
    if with_needs and reply.kernels:
        kernel_run.diagnosis.code_needs = reply.kernels
    return _packed(kernel_run, forms, reply.texts)


def _packed(
    kernel_run: KernelRun, forms: list[Form], entries: list[CodeText | MissingText]
) -> list[Listing | NoListing]:
    listings: list[Listing | NoListing] = []
    names: set[str] = set()
    left = MAX_PACKED_BYTES
    for entry in sorted((item for item in entries if item.form in forms), key=lambda item: forms.index(item.form)):
        kernel = _plain(kernel_run, entry.kernel)
        if isinstance(entry, MissingText):
            listings.append(NoListing(entry.form, _plain(kernel_run, entry.reason), kernel))
            continue
        text = _cleaned(kernel_run, entry.text)
        packed = pack(text)
        if len(packed) > left:
            reason = (
                f"the code of one kernel may take {MAX_PACKED_BYTES >> 20} MiB, compressed: ask for fewer artifacts"
            )
            listings.append(NoListing(entry.form, reason, kernel))
            continue
        left -= len(packed)
        name = _name(kernel, entry.form, names)
        names.add(name)
        variant = _plain(kernel_run, entry.variant) if entry.variant is not None else None
        size = len(text.encode(errors="replace"))
        listings.append(Listing(name, kernel, entry.form, size, packed, entry.truncated, variant))
    covered = {entry.format for entry in listings}
    return listings + [NoListing(form, _why_none(kernel_run, form)) for form in forms if form not in covered]


def _name(kernel: str, form: Form, used: set[str]) -> str:
    stem = _IN_NO_NAME.sub("_", kernel)[:_NAME_CHARS].strip("._-") or "kernel"
    numbered = (f"{stem}{f'-{number}' if number > 1 else ''}.{form}" for number in range(1, len(used) + 2))
    return next(name for name in numbered if name not in used)


def _why_none(kernel_run: KernelRun, form: Form) -> str:
    """Why the kernel's folder has no code of this form."""
    kernel_type, facts = kernel_run.kernel.kernel_type, kernel_run.facts
    if form.of_triton and kernel_type in _WITHOUT_TRITON:
        return f"{form} is one of Triton's stages, and this is a kernel of type {kernel_type}: ask for ptx or sass"
    if facts.get("interpreted"):
        return "interpreted on a worker without a GPU, so never compiled: send it to one that has a GPU (`gpu`)"
    if kernel_run.fault is not None:
        return "nothing was compiled before the job ended, or its code is in another folder"
    return f"its build and its calls left no code of its own with {form}; code of torch and its libraries is not listed"


def _cleaned(kernel_run: KernelRun, text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", kernel_run.redact_paths(text))


def _plain(kernel_run: KernelRun, value: Any) -> str:
    """The text as one short line."""
    return " ".join(_cleaned(kernel_run, str(value)).split())[:_LINE_CHARS]
