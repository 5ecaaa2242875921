"""Hardware counters and compute-sanitizer findings in a few lines, with a mark on text from the submission."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_eval_client.device_metrics import KernelMetrics, in_words
from kernel_eval_client.explain import finding_excerpt
from kernel_eval_client.result import Result
from kernel_eval_client.untrusted_text import cut, plain, quoted

_KERNELS, _ADVICE, _METRICS, _FINDINGS = 3, 3, 4, 3


def sanitizer_lines(result: Result, source: str) -> Iterator[str]:
    """The headline, and each finding with its line of the source."""
    checked = result.sanitizer
    if checked is None:
        return
    yield f"sanitizer: {cut(plain(checked.headline), 300)}"
    findings = [(tool, finding) for tool in checked.tools_with_findings for finding in tool.findings]
    for tool, finding in findings[:_FINDINGS]:
        repeats = f" ({finding.count} times)" if finding.count > 1 else ""
        yield quoted(f"{tool.name}: {finding.kind}{repeats}: {finding.place}", 200)
        yield from (quoted(line, 120) for line in finding_excerpt(source, finding))
    if len(findings) > _FINDINGS:
        yield f"{len(findings) - _FINDINGS} more: part=sanitizer has them"


def counter_lines(result: Result) -> Iterator[str]:
    """The counters of the candidate's kernels, longest first, and ncu's advice; or why there are none."""
    metrics = result.device_metrics
    if metrics is None:
        return
    side = metrics.candidate
    if not metrics.measured or side is None or not side.kernels:
        reason = (side.reason if side is not None else None) or metrics.reason or "no kernel was seen"
        yield f"counters: unavailable: {cut(plain(reason), 240)}"
        return
    yield "counters, by its own processes' word (part=device_metrics has all):"
    if side.reason:
        yield cut(plain(side.reason), 240)
    for kernel in side.kernels[:_KERNELS]:
        yield quoted(f"{_title(kernel)}: {', '.join(in_words(kernel)) or 'no figures'}", 260)
        for metric in kernel.requested_metrics[:_METRICS]:
            value = "not given" if metric.value is None else f"{metric.value:.6g} {metric.unit}".rstrip()
            yield quoted(f"{metric.name} = {value}", 200)
    for advice in side.advice[:_ADVICE]:
        yield quoted(f"advice about {cut(advice.kernel, 60)}: {advice.message}", 300)


def _title(kernel: KernelMetrics) -> str:
    share = "" if kernel.share is None else f" ({kernel.share:.0%} of the time)"
    return cut(kernel.name, 60) + share
