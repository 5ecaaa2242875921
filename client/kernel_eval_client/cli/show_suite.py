"""Prints a suite's results: a line for each candidate, and the scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from kernel_eval_client.cli.show import runtime, speedup, table_of, truncatable
from kernel_eval_client.cli.terminal import Grid, Terminal
from kernel_eval_client.cli.wording import BAD, DIM, GOOD, REMARK, first_line
from kernel_eval_client.suites import Case, Outcome, Score, score
from kernel_eval_client.suites.scoring import Mean, Share


def groups(outcomes: Sequence[Outcome]) -> dict[str, Score]:
    """The score of all outcomes; also of each level and of each candidate where there are several."""
    by_group = {"all": score(outcomes)}
    levels = sorted({each.level for each in outcomes if each.level is not None})
    labels = sorted({each.candidate for each in outcomes})
    if len(levels) > 1:
        by_group |= {f"level {level}": score([each for each in outcomes if each.level == level]) for level in levels}
    if len(labels) > 1:
        by_group |= {label: score([each for each in outcomes if each.candidate == label]) for label in labels}
    return by_group


def table(console: Terminal, outcomes: Iterable[Outcome]) -> None:
    """Prints one line for each candidate."""
    grid = table_of("problem", "candidate", "verdict", "reference", "time", "speed-up", "what")
    for outcome in outcomes:
        result = outcome.result
        style = DIM if result is None or not outcome.judged else GOOD if result.passed else BAD
        grid.add_row(
            *(
                truncatable(outcome.problem),
                Text(outcome.candidate),
                Text(result.verdict if result else "not judged", style=style),
            ),
            *(runtime(result.reference if result else None), runtime(result.kernel if result else None)),
            speedup(result.speedup if result else None),
            truncatable(first_line((result.error if result else outcome.reason) or "", REMARK), DIM),
        )
    console.table(grid)


def unsupported(outcomes: Iterable[Outcome]) -> list[str]:
    """The candidates that were not judged because the workers lack something, such as a GPU."""
    return [f"{each.problem}:{each.candidate}" for each in outcomes if each.worker_lacks_something]


def scores(console: Terminal, by_group: dict[str, Score], outcomes: Iterable[Outcome]) -> None:
    """Prints a line for each group of `groups`, and notes that explain the columns."""
    overall = next(iter(by_group.values()))
    grid = Grid("", "judged", "correct", *(f"fast_{p}" for p in overall.fast), "speed-up")
    for name, group_score in by_group.items():
        grid.add_row(
            *(name, _judged(group_score), _part(group_score.correct)),
            *(_both(group_score.fast[p], group_score.surely_fast[p]) for p in group_score.fast),
            _mean(group_score.speedup),
        )
    console.say()
    console.table(grid)
    notes = [
        "Each problem counts once, with its best candidate. fast_p: correct and more than p times as fast; in brackets,"
    ]
    notes.append(
        "with the whole interval above p. speed-up: geometric mean over correct candidates, 95 % bootstrap interval."
    )
    if overall.not_judged:
        problems_were = "problem was" if overall.not_judged == 1 else "problems were"
        notes.append(f"{overall.not_judged} {problems_were} not judged, and in no share.")
    if names := unsupported(outcomes):
        notes.append(f"Not judged, as the workers lack what it needs: {', '.join(names)}.")
    if overall.bounds:
        have = "candidate has" if overall.bounds == 1 else "candidates have"
        notes.append(
            f"{overall.bounds} correct {have} only a bound of the speed-up (>= or <=), which the mean excludes."
        )
    if weak := overall.fixed_outputs_pass:
        notes.append(f"Outputs fixed beforehand would pass, so that no speed-up counts: {', '.join(weak)}.")
    devices = sorted({_device(each) for each in outcomes if each.result is not None})
    if len(devices) > 1:
        notes.append(
            f"These times come from different devices and cannot be compared in one score: {', '.join(devices)}."
        )
    elif devices:
        notes.append(f"On {devices[0]}.")
    for note in notes:
        console.say(note, style=DIM)


def listing(console: Terminal, cases: Iterable[Case]) -> None:
    """Prints the problems and candidates, without judging any."""
    grid = Grid("problem", "candidate", "type", "about")
    for case in cases:
        kernel = case.candidate.kernel
        grid.add_row(
            *(Text(case.problem.name), Text(case.candidate.label), str(kernel.kernel_type) if kernel else "–"),
            Text(first_line(case.problem.about))
            if case.refused is None
            else Text(f"cannot be submitted: {case.refused}", DIM),
        )
    console.table(grid)


def _device(outcome: Outcome) -> str:
    environment = outcome.result.environment if outcome.result else {}
    return str(environment.get("gpu_name") or environment.get("device") or "?")


def _judged(group_score: Score) -> str:
    return f"{group_score.problems - group_score.not_judged} of {group_score.problems}"


def _part(share: Share) -> str:
    if share.part is None or share.ci_low is None or share.ci_high is None:
        return "–"
    return f"{share.part:.0%} ({share.ci_low:.0%} to {share.ci_high:.0%})"


def _both(share: Share, surely: Share) -> str:
    return "–" if share.part is None else f"{share.part:.0%} ({surely.part:.0%})"


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return "–"
    problems = "1 problem" if mean.of == 1 else f"{mean.of} problems"
    return f"{mean.ratio:.2f}x ({mean.ci_low:.2f} to {mean.ci_high:.2f}), {problems}"
