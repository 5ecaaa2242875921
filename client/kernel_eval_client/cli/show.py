"""Results, jobs and errors as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.text import Text

from kernel_eval_client.async_client import Finished
from kernel_eval_client.cli import show_device
from kernel_eval_client.cli.terminal import Grid, Terminal
from kernel_eval_client.cli.wording import BAD, DIM, GOOD, REMARK, milliseconds, of_command, short
from kernel_eval_client.errors import CallerError, KernelEvalError, ServiceError
from kernel_eval_client.explain import excerpt, spots
from kernel_eval_client.job import Job
from kernel_eval_client.launched import in_a_line
from kernel_eval_client.machine_code import MachineCode
from kernel_eval_client.result import KernelResult, Result
from kernel_eval_client.timing import Speedup

ERROR_LINES = 12
KERNELS = 8


def runtime(found: KernelResult | None) -> str:
    """The mean of its calls; "<=" before an upper bound."""
    if found is None or found.timing is None:
        return "–"
    return ("<= " if found.timing.bounded else "") + milliseconds(found.timing.stats.mean)


def speedup(found: Speedup | None) -> str:
    """The ratio with its interval; ">=" or "<=" before a bound."""
    if found is None:
        return "–"
    if found.bound is not None:
        return f"{'>=' if found.bound == 'at_least' else '<='} {found.ratio:.2f}x"
    high = "…" if found.ci_high is None else f"{found.ci_high:.2f}"
    return f"{found.ratio:.2f}x ({found.ci_low:.2f} to {high})"


def result(console: Terminal, name: str, source: str, found: Result, *, verbose: bool = False) -> None:
    """The verdict, and what it rests on; of a failure the lines of the source that are meant."""
    kernel = found.kernel
    entry = kernel.metadata.get("kernel_name")
    console.say((found.verdict, GOOD if found.passed else BAD), f"  {name}", (f"  {entry or ''}", DIM))
    for title, text in _facts(found):
        console.say((f"  {title:<9} ", DIM), text)
    for flag in found.flags:
        console.say(("  flag      ", "yellow"), flag)
    if found.error:
        _failure(console, found.error, source, verbose=verbose)
    if (checked := found.sanitizer) is not None:
        show_device.sanitizer(console, checked, source)
    if (metrics := found.device_metrics) is not None:
        show_device.device_metrics(console, metrics)
    if kernel.machine_code:
        machine_code(console, kernel.machine_code)
    if found.artifacts:
        console.say(f"  artifacts {_texts(found)}: kernel-eval artifacts {found.job_id} -o DIR", style=DIM)
    if verbose and kernel.output:
        console.say("  printed:", style=DIM)
        console.block(kernel.output, DIM)


def _facts(found: Result) -> Iterator[tuple[str, str]]:
    timing, comparison = found.kernel.timing, found.kernel.comparison
    if timing is not None:
        sure = "" if timing.relative_ci is None else f", ±{timing.relative_ci:.1%}"
        spread = f"median {milliseconds(timing.stats.median)}, 95 % under {milliseconds(timing.stats.percentile_95)}"
        yield (
            "time",
            f"{runtime(found.kernel)} a call{sure} ({spread}; {timing.calls} calls, {timing.method})",
        )
    if found.speedup is not None:
        yield "speed-up", f"{speedup(found.speedup)}, {found.speedup.verdict.replace('_', ' ')}"
    elif found.speedup_unavailable_reason is not None and found.passed:
        yield "speed-up", f"none: {found.speedup_unavailable_reason}"
    if comparison is not None:
        wrong = f"{comparison.mismatch_count} of {comparison.element_count} elements out of tolerance"
        yield "outputs", f"{wrong} (atol {comparison.atol}, rtol {comparison.rtol})"
    for sentence in comparison.weak_reference if comparison else ():
        yield "weak", sentence
    if (launched := in_a_line(found.kernel.launches)) is not None:
        yield "launches", launched
    if found.kernel.inputs.get("inferred"):
        yield "inputs", str(found.kernel.inputs["inferred"])
    device = found.environment.get("gpu_name") or found.environment.get("device") or "?"
    yield "on", f"{device}, job {found.job_id}"


def machine_code(console: Terminal, codes: Sequence[MachineCode]) -> None:
    """A line for each kernel: registers and local memory of a thread, shared memory of a block, occupancy."""
    table = Grid("  kernel", "registers", "local", "spills", "shared", "occupancy", "limited by")
    table.header_style = DIM
    for column in table.columns[1:6]:
        column.justify = "right"
    for code in codes[:KERNELS]:
        spills = None if code.spill_store_bytes is None else code.spill_store_bytes + (code.spill_load_bytes or 0)
        figures = (code.registers, code.local_bytes, spills, code.shared_bytes)
        table.add_row(
            f"  {short(code.name)}",
            *("–" if figure is None else str(figure) for figure in figures),
            "–" if code.occupancy is None else f"{code.occupancy:.0%}",
            (code.limited_by or "–").replace("_", " "),
        )
    console.table(table)
    if len(codes) > KERNELS:
        console.say(f"  {len(codes) - KERNELS} more kernels", style=DIM)


def _texts(found: Result) -> str:
    there = sum(one.name is not None for one in found.artifacts)
    lacking = len(found.artifacts) - there
    return f"{there} kept" + (f", {lacking} not to be had" if lacking else "")


def _failure(console: Terminal, error: str, source: str, *, verbose: bool) -> None:
    lines = error.splitlines()
    found = spots(error)
    console.say(f"  {lines[0]}", style=BAD)
    for spot in found:
        console.say(f"  line {spot.line}: {spot.message}", style="bold")
        for line in excerpt(source, spot):
            console.block([line], "bold" if line.startswith(">") else DIM)
    rest = lines[1:] if verbose or not found else []
    shown = rest if verbose else rest[:ERROR_LINES]
    console.block(shown)
    if len(lines) - 1 > len(shown):
        console.say("  (--verbose shows all of it)", style=DIM)


def error(console: Terminal, found: KernelEvalError) -> None:
    """What went wrong, field by field where the request is at fault."""
    fields = found.fields if isinstance(found, CallerError) else ()
    if not fields:
        first, *rest = str(found).splitlines() or [""]
        console.say(f"kernel-eval: {first}", style=BAD)
        console.block(rest, BAD)
        if isinstance(found, ServiceError):
            console.say("`kernel-eval doctor` looks for the cause.", style=DIM)
        return
    console.say("kernel-eval: the request is not valid", style=BAD)
    for each in fields:
        console.say(f"  {of_command(str(each))}")


def job(console: Terminal, found: Job) -> None:
    """One job in a few lines."""
    position = "" if found.queue_position is None else f", {found.queue_position} before it"
    console.say(f"{found.job_id}  {found.state} ({found.stage}{position})")
    for step in found.timeline:
        began = float(step["at"]) - float(found.timeline[0]["at"])
        console.say(f"  {began:8.2f} s  {step['stage']}", style=DIM)
    for attempt in found.failed_attempts:
        console.say(f"  attempt {attempt['attempt']} failed: {attempt['reason']}", style="yellow")
    if found.error:
        console.say(f"  {found.error}", style=BAD)


def jobs(console: Terminal, found: Iterable[Job]) -> None:
    """One line for each."""
    table = Grid("job", "state", "verdict", "stage", "operation", "type", "worker")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for each in found:
        cells = (each.job_id, each.state, each.verdict, each.stage, each.operation, each.kernel_type)
        table.add_row(*(cell or "–" for cell in cells), cuttable(each.worker or "–"))
    console.table(table)


def summary(console: Terminal, found: Iterable[Finished]) -> None:
    """The table of a batch: one line for each submission, the counts below."""
    table = whole("file", "verdict", "time", "speed-up", "what")
    counts: dict[str, int] = {}
    for each in found:
        verdict = each.result.verdict if each.result else type(each.error).__name__
        counts[verdict] = counts.get(verdict, 0) + 1
        passed = each.result is not None and each.result.passed
        text = _what(each.result) if each.result else str(each.error)
        table.add_row(
            cuttable(each.submission.label or str(each.index)),
            Text(verdict, style=GOOD if passed else BAD),
            runtime(each.result.kernel if each.result else None),
            speedup(each.result.speedup if each.result else None),
            cuttable(short(text or "", REMARK), DIM),
        )
    console.table(table)
    console.say()
    console.say(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


def skipped(console: Terminal, found: Mapping[str, str]) -> None:
    """What a batch left out, and why: one line for each reason."""
    for why in dict.fromkeys(found.values()):
        names = ", ".join(name for name, each in found.items() if each == why)
        console.say(f"skipped, as no submission ({why}): {names}", style=DIM)


def whole(*titles: str) -> Grid:
    """A table whose columns are never cut but for the first and the last, which are `cuttable`: rich cuts all alike."""
    table = Grid(*titles)
    for column in table.columns[1:-1]:
        column.no_wrap = True
    return table


def cuttable(text: str, style: str = "") -> Text:
    """A cell on one line that ends in an ellipsis where the table is too wide."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _what(found: Result) -> str | None:
    """Why it did not pass; of one that passed what the sanitizer found."""
    checked = found.sanitizer
    return found.error or (f"sanitizer {checked.headline}" if checked is not None and checked.found else None)
