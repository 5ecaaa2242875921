"""Prints results, jobs and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.text import Text

from kernel_eval_client.async_client import Finished
from kernel_eval_client.cli import show_device
from kernel_eval_client.cli.terminal import Grid, Terminal
from kernel_eval_client.cli.wording import BAD, DIM, GOOD, REMARK, first_line, for_command_line, milliseconds
from kernel_eval_client.errors import CallerError, KernelEvalError, ServiceError
from kernel_eval_client.explain import error_lines, excerpt
from kernel_eval_client.flag import Flag
from kernel_eval_client.job import Job
from kernel_eval_client.launch_summary import in_a_line
from kernel_eval_client.machine_code import MachineCode
from kernel_eval_client.result import KernelResult, Result
from kernel_eval_client.timing import Speedup, known_fields

ERROR_LINES = 12
KERNELS = 8
FINDINGS = {
    "confirmed": "confirmed",
    "larger": "confirmed, and more than it said",
    "smaller": "not confirmed in full: the speed-up is smaller; trust what both support together",
    "vanished": "not confirmed: no faster this time; measure again on a machine that does nothing else",
    "only_bounds": "unknown: a time is only a bound; compare again with more work per call (larger inputs)",
    "not_measured": "unknown: no speed-up was measured this time; compare again with more work per call",
}
"""What a confirmation found, and what to do where it did not confirm; by the `finding` of a result."""


def runtime(kernel: KernelResult | None) -> str:
    """The mean time of a call; "<=" marks an upper bound, and "–" a kernel without a time."""
    if kernel is None or kernel.timing is None:
        return "–"
    return ("<= " if kernel.timing.bounded else "") + milliseconds(kernel.timing.stats.mean)


def speedup(ratio: Speedup | None) -> str:
    """The speed-up with its interval; ">=" or "<=" marks a bound, and "–" a missing one."""
    if ratio is None:
        return "–"
    if ratio.bound is not None:
        return f"{'>=' if ratio.bound == 'at_least' else '<='} {ratio.ratio:.2f}x"
    high = "…" if ratio.ci_high is None else f"{ratio.ci_high:.2f}"
    return f"{ratio.ratio:.2f}x ({ratio.ci_low:.2f} to {high})"


def result(
    console: Terminal, name: str, source: str, verdict: Result, *, verbose: bool = False, url: str | None = None
) -> None:
    """Prints the verdict with its figures, flags, error and next step. `url` is the service's, for a link.

    An error names lines of `source`: they are quoted.
    """
    kernel = verdict.kernel
    entry = kernel.metadata.get("kernel_name")
    console.say((verdict.verdict, GOOD if verdict.passed else BAD), f"  {name}", (f"  {entry or ''}", DIM))
    for title, text in _facts(verdict):
        console.say((f"  {title:<9} ", DIM), text)
    for flag in _further_flags(verdict):
        console.say(("  flag      ", "yellow"), str(flag))
    if verdict.cases:
        cases(console, verdict)
    if verdict.error:
        _failure(console, verdict.error, source, verbose=verbose)
    if (checked := verdict.sanitizer) is not None:
        show_device.sanitizer(console, checked, source)
    if (metrics := verdict.device_metrics) is not None:
        show_device.device_metrics(console, metrics)
    if kernel.machine_code:
        machine_code(console, kernel.machine_code)
    if verdict.artifacts:
        console.say(f"  artifacts {_texts(verdict)}: kernel-eval artifacts {verdict.job_id} -o DIR", style=DIM)
    if verbose and kernel.output:
        console.say("  printed:", style=DIM)
        console.block(kernel.output, DIM)
    _what_follows(console, verdict, url)


def _further_flags(verdict: Result) -> list[Flag]:
    """The flags but those about a weak reference, which stand among the facts."""
    comparison = verdict.kernel.comparison
    weak = {flag.message for flag in comparison.weak_reference} if comparison else set()
    return [flag for flag in verdict.flags if flag.message not in weak]


def _what_follows(console: Terminal, verdict: Result, url: str | None) -> None:
    unfit = verdict.qualification is not None and not verdict.qualification.get("fit")
    if verdict.next is not None and (not verdict.passed or unfit):
        console.say("  next      ", (for_command_line(verdict.next), "bold"))
    if verdict.report is not None and url is not None:
        console.say(f"  report    {url}{verdict.report}", style=DIM)


def cases(console: Terminal, result: Result) -> None:
    """Prints a line for each visible case, and how many hidden ones passed."""
    table = Grid("  case", "verdict", "time", "speed-up")
    table.header_style = DIM
    for case in result.cases:
        time_text = milliseconds(case.runtime_ms)
        table.add_row(f"  {first_line(case.name)}", case.verdict or "not judged", time_text, speedup(case.speedup))
    console.table(table)
    if result.hidden_cases.get("count"):
        console.say("  {passed} of {count} hidden cases passed".format(**result.hidden_cases), style=DIM)


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    timing, comparison = result.kernel.timing, result.kernel.comparison
    if timing is not None:
        sure = "" if timing.relative_ci is None else f", ±{timing.relative_ci:.1%}"
        spread = f"median {milliseconds(timing.stats.median)}, 95 % under {milliseconds(timing.stats.percentile_95)}"
        yield (
            "time",
            f"{runtime(result.kernel)} a call{sure} ({spread}; {timing.calls} calls, {timing.method})",
        )
    if result.speedup is not None:
        verdict = "says nothing" if result.fixed_outputs_pass else result.speedup.verdict.replace("_", " ")
        yield "speed-up", f"{speedup(result.speedup)}, {verdict}"
    elif result.speedup_unavailable_reason is not None and result.passed:
        yield "speed-up", f"none: {result.speedup_unavailable_reason}"
    yield from _beside_the_speedup(result)
    if comparison is not None:
        wrong = f"{comparison.mismatch_count} of {comparison.element_count} elements out of tolerance"
        yield "outputs", f"{wrong} (atol {comparison.atol}, rtol {comparison.rtol})"
    for flag in comparison.weak_reference if comparison else ():
        yield "weak", flag.message
    if (launched := in_a_line(result.kernel.launches)) is not None:
        yield "launches", launched
    if result.kernel.inputs.get("inferred"):
        yield "inputs", str(result.kernel.inputs["inferred"])
    device = result.environment.get("gpu_name") or result.environment.get("device") or "?"
    yield "on", f"{device}, job {result.job_id}"


def _beside_the_speedup(result: Result) -> Iterator[tuple[str, str]]:
    if (qualified := result.qualification) is not None:
        yield "fit", str(qualified.get("sentence"))
    if result.headroom.ratio is not None:
        yield "headroom", str(result.headroom)
    for baseline in result.baselines:
        if baseline.name != "eager":
            broken = f", {baseline.graph_breaks} graph breaks" if baseline.graph_breaks else ""
            outcome = f"none: {baseline.message}" if baseline.speedup is None else speedup(baseline.speedup) + broken
            yield f"to {baseline.name}", outcome
    if (confirmed := result.confirmation) is not None:
        together = confirmed.get("together")
        both = f"; together {speedup(Speedup(**known_fields(Speedup, together)))}" if together else ""
        finding = str(confirmed.get("finding"))
        yield "confirms", f"job {confirmed.get('of')}: {FINDINGS.get(finding, finding)}{both}"


def machine_code(console: Terminal, codes: Sequence[MachineCode]) -> None:
    """Prints a line for each kernel: registers, memory and spills in bytes, occupancy and what limits it."""
    table = Grid("  kernel", "registers", "local", "spills", "shared", "occupancy", "limited by")
    table.header_style = DIM
    for column in table.columns[1:6]:
        column.justify = "right"
    for code in codes[:KERNELS]:
        spills = None if code.spill_store_bytes is None else code.spill_store_bytes + (code.spill_load_bytes or 0)
        figures = (code.registers, code.local_bytes, spills, code.shared_bytes)
        table.add_row(
            f"  {first_line(code.name)}",
            *("–" if figure is None else str(figure) for figure in figures),
            "–" if code.occupancy is None else f"{code.occupancy:.0%}",
            (code.limited_by or "–").replace("_", " "),
        )
    console.table(table)
    if len(codes) > KERNELS:
        console.say(f"  {len(codes) - KERNELS} more kernels", style=DIM)


def _texts(result: Result) -> str:
    available = sum(artifact.name is not None for artifact in result.artifacts)
    unavailable = len(result.artifacts) - available
    return f"{available} available" + (f", {unavailable} unavailable" if unavailable else "")


def _failure(console: Terminal, error: str, source: str, *, verbose: bool) -> None:
    lines = error.splitlines()
    locations = error_lines(error)
    console.say(f"  {lines[0]}", style=BAD)
    for location in locations:
        console.say(f"  line {location.line}: {location.message}", style="bold")
        for line in excerpt(source, location):
            console.block([line], "bold" if line.startswith(">") else DIM)
    details = lines[1:] if verbose or not locations else []
    printed = details if verbose else details[:ERROR_LINES]
    console.block(printed)
    if len(lines) - 1 > len(printed):
        console.say("  (--verbose shows the rest)", style=DIM)


def error(console: Terminal, failure: KernelEvalError) -> None:
    """Prints an error; for an invalid request one line for each field at fault."""
    fields = failure.fields if isinstance(failure, CallerError) else ()
    if not fields:
        first, *details = str(failure).splitlines() or [""]
        console.say(f"kernel-eval: {first}", style=BAD)
        console.block(details, BAD)
        if isinstance(failure, ServiceError):
            console.say("`kernel-eval doctor` looks for the cause.", style=DIM)
        _next(console, failure)
        return
    console.say("kernel-eval: the request is not valid", style=BAD)
    for field in fields:
        console.say(f"  {for_command_line(str(field))}")
    _next(console, failure)


def _next(console: Terminal, failure: KernelEvalError) -> None:
    if failure.next is not None:
        console.say(("next: ", DIM), for_command_line(failure.next))


def job(console: Terminal, record: Job) -> None:
    """Prints a job: its state, the time of each stage, and failed attempts."""
    position = "" if record.queue_position is None else f", {record.queue_position} before it"
    console.say(f"{record.job_id}  {record.state} ({record.stage}{position})")
    for step in record.timeline:
        began = float(step["at"]) - float(record.timeline[0]["at"])
        console.say(f"  {began:8.2f} s  {step['stage']}", style=DIM)
    for attempt in record.failed_attempts:
        console.say(f"  attempt {attempt['attempt']} failed: {attempt['reason']}", style="yellow")
    if record.error:
        console.say(f"  {record.error}", style=BAD)


def jobs(console: Terminal, records: Iterable[Job]) -> None:
    """Prints one line for each job."""
    table = Grid("job", "state", "verdict", "stage", "operation", "type", "name", "worker")
    for column in table.columns[:-2]:
        column.no_wrap = True
    for record in records:
        cells = (record.job_id, record.state, record.verdict, record.stage, record.operation, record.kernel_type)
        ends = (truncatable(first_line(cell)) for cell in (record.name or "–", record.worker or "–"))
        table.add_row(*(cell or "–" for cell in cells), *ends)
    console.table(table)


def summary(console: Terminal, finished: Iterable[Finished]) -> None:
    """Prints the table of a batch, one line for each submission, and the number of each verdict."""
    table = table_of("file", "verdict", "time", "speed-up", "what")
    counts: dict[str, int] = {}
    for entry in finished:
        verdict = entry.result.verdict if entry.result else type(entry.error).__name__
        counts[verdict] = counts.get(verdict, 0) + 1
        passed = entry.result is not None and entry.result.passed
        text = _what(entry.result) if entry.result else str(entry.error)
        table.add_row(
            truncatable(entry.submission.label or str(entry.index)),
            Text(verdict, style=GOOD if passed else BAD),
            runtime(entry.result.kernel if entry.result else None),
            speedup(entry.result.speedup if entry.result else None),
            truncatable(first_line(text or "", REMARK), DIM),
        )
    console.table(table)
    console.say()
    console.say(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


def skipped(console: Terminal, reasons: Mapping[str, str]) -> None:
    """Prints the files that a batch skipped, one line for each reason."""
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(name for name, value in reasons.items() if value == reason)
        console.say(f"skipped, as no submission ({reason}): {names}", style=DIM)


def table_of(*titles: str) -> Grid:
    """A table that truncates only its first and last column, whose cells are `truncatable`."""
    table = Grid(*titles)
    for column in table.columns[1:-1]:
        column.no_wrap = True
    return table


def truncatable(text: str, style: str = "") -> Text:
    """A cell of one line; an ellipsis replaces its end if the table is too wide."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _what(result: Result) -> str | None:
    """The error of a kernel that did not pass; else the sanitizer's findings, if any."""
    checked = result.sanitizer
    return result.error or (
        f"sanitizer {checked.headline}" if checked is not None and checked.tools_with_findings else None
    )
