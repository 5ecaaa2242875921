"""Prints the hardware counters and the findings of compute-sanitizer."""

from __future__ import annotations

from kernel_eval_client.cli.terminal import Grid, Terminal
from kernel_eval_client.cli.wording import BAD, DIM, GOOD, first_line, milliseconds
from kernel_eval_client.device_metrics import DeviceMetrics, KernelMetrics, SideMetrics
from kernel_eval_client.explain import finding_excerpt
from kernel_eval_client.sanitizer import Sanitizer, Tool

KERNELS, ADVICE, FINDINGS = 12, 6, 8


def device_metrics(console: Terminal, metrics: DeviceMetrics) -> None:
    """Prints a table of each side's kernels and ncu's advice, or the reason why there are no metrics."""
    if not metrics.measured:
        console.say(f"  counters  unavailable: {metrics.reason or 'no reason is given'}", style="yellow")
    for name, side in metrics.sides:
        if side.status != "measured":
            console.say(f"  counters  of the {name}: unavailable: {side.reason or 'no reason'}", style="yellow")
        elif side.reason:
            console.say(f"  counters  of the {name}: {side.reason}", style=DIM)
        if side.kernels:
            _side(console, name if len(metrics.sides) > 1 else "kernel", side)


def _side(console: Terminal, name: str, side: SideMetrics) -> None:
    titles = ("time", "share", "SM", "memory", "DRAM", "L2 hits", "occupancy", "tensor", "waits for")
    table = Grid(f"  counters: {name}", *titles)
    table.header_style = DIM
    for column in table.columns[1:9]:
        column.justify = "right"
    for kernel in side.kernels[:KERNELS]:
        table.add_row(*_row(kernel))
    console.table(table)
    if more := max(0, len(side.kernels) - KERNELS) + side.kernels_omitted:
        console.say(f"  {more} more kernels", style=DIM)
    for kernel in side.kernels[:KERNELS]:
        for metric in kernel.requested_metrics:
            value = "–" if metric.value is None else f"{metric.value:.6g} {metric.unit}".rstrip()
            console.say(f"  metric    {first_line(kernel.name)}: {metric.name} = {value}")
    for advice in side.advice[:ADVICE]:
        console.say(("  advice    ", "cyan"), f"{first_line(advice.kernel)}: {advice.message}")
    if len(side.advice) > ADVICE:
        console.say(f"  {len(side.advice) - ADVICE} more pieces of advice (--json has them)", style=DIM)


def _row(kernel: KernelMetrics) -> tuple[str, ...]:
    occupancy = _percent(kernel.achieved_occupancy)
    if kernel.theoretical_occupancy is not None:
        occupancy += f" of {_percent(kernel.theoretical_occupancy)}"
    waits = "–"
    if kernel.stalls:
        waits = f"{kernel.stalls[0].reason.replace('_', ' ')} {_percent(kernel.stalls[0].percent)}"
    return (
        f"  {first_line(kernel.name)}",
        milliseconds(None if kernel.time_us is None else kernel.time_us / 1e3),
        "–" if kernel.share is None else f"{kernel.share:.0%}",
        _percent(kernel.sm_percent),
        _percent(kernel.memory_percent),
        _percent(kernel.dram_percent),
        _percent(kernel.l2_hit_percent),
        occupancy,
        _percent(kernel.tensor_percent),
        waits,
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}%"


def sanitizer(console: Terminal, report: Sanitizer, source: str) -> None:
    """Prints a line about the whole report, and each finding with its line of the source."""
    style = BAD if report.tools_with_findings else GOOD if report.status == "clean" else "yellow"
    console.say(("  sanitizer ", DIM), (report.headline, style))
    for tool in report.tools:
        if tool.status == "unavailable" and report.status != "unavailable":
            console.say(f"  {tool.name}: unavailable: {tool.reason or 'no reason'}", style="yellow")
        _findings(console, tool, source)


def _findings(console: Terminal, tool: Tool, source: str) -> None:
    for finding in tool.findings[:FINDINGS]:
        repeats = f" ({finding.count} times)" if finding.count > 1 else ""
        console.say(f"  {tool.name}: {finding.kind}{repeats}: {finding.place or 'no place is given'}", style="bold")
        if finding.message and finding.message != finding.kind:
            console.say(f"    {finding.message}", style=DIM)
        for line in finding_excerpt(source, finding):
            console.block([line], "bold" if line.startswith(">") else DIM)
    more = max(0, len(tool.findings) - FINDINGS) + tool.findings_omitted
    if more:
        console.say(f"  {tool.name}: {more} more", style=DIM)
