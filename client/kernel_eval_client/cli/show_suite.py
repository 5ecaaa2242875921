"""A suite as a person reads it: a line for each candidate, the scores below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from kernel_eval_client.cli.show import cuttable, runtime, speedup, whole
from kernel_eval_client.cli.terminal import Grid, Terminal
from kernel_eval_client.cli.wording import BAD, DIM, GOOD, REMARK, short
from kernel_eval_client.suites import Case, Outcome, Score, score
from kernel_eval_client.suites.scoring import Mean, Share


def groups(outcomes: Sequence[Outcome]) -> dict[str, Score]:
    """All of them; and where there are several, by level and by candidate."""
    found = {"all": score(outcomes)}
    levels = sorted({each.level for each in outcomes if each.level is not None})
    labels = sorted({each.candidate for each in outcomes})
    if len(levels) > 1:
        found |= {f"level {level}": score([each for each in outcomes if each.level == level]) for level in levels}
    if len(labels) > 1:
        found |= {label: score([each for each in outcomes if each.candidate == label]) for label in labels}
    return found


def table(console: Terminal, outcomes: Iterable[Outcome]) -> None:
    """One line for each candidate."""
    shown = whole("problem", "candidate", "verdict", "reference", "time", "speed-up", "what")
    for each in outcomes:
        found = each.result
        style = DIM if found is None or not each.judged else GOOD if found.passed else BAD
        shown.add_row(
            *(
                cuttable(each.problem),
                Text(each.candidate),
                Text(found.verdict if found else "not judged", style=style),
            ),
            *(runtime(found.reference if found else None), runtime(found.kernel if found else None)),
            speedup(found.speedup if found else None),
            cuttable(short((found.error if found else each.reason) or "", REMARK), DIM),
        )
    console.table(shown)


def scores(console: Terminal, found: dict[str, Score], outcomes: Iterable[Outcome]) -> None:
    """A line for each group of `groups`, and what has to be known to read it."""
    every = next(iter(found.values()))
    shown = Grid("", "judged", "correct", *(f"fast_{p}" for p in every.fast), "speed-up")
    for name, one in found.items():
        shown.add_row(
            *(name, f"{one.problems - one.not_judged} of {one.problems}", _part(one.correct)),
            *(_both(one.fast[p], one.surely_fast[p]) for p in one.fast),
            _mean(one.speedup),
        )
    console.say()
    console.table(shown)
    notes = [
        "Each problem counts once, with its best candidate. fast_p: right and more than p times as fast; in brackets,"
    ]
    notes.append(
        "with the whole interval above p. speed-up: geometric mean over right answers, 95 % bootstrap interval."
    )
    if every.not_judged:
        were = "problem was" if every.not_judged == 1 else "problems were"
        notes.append(f"{every.not_judged} {were} not judged: neither right nor wrong.")
    if every.bounds:
        have = "answer has" if every.bounds == 1 else "answers have"
        notes.append(f"{every.bounds} right {have} a bound of the speed-up (>= or <=) only, left out of the mean.")
    devices = sorted({_device(each) for each in outcomes if each.result is not None})
    if len(devices) > 1:
        notes.append(
            f"These times come from different devices, and do not belong into one score: {', '.join(devices)}."
        )
    elif devices:
        notes.append(f"On {devices[0]}.")
    for note in notes:
        console.say(note, style=DIM)


def listing(console: Terminal, cases: Iterable[Case]) -> None:
    """Problems and candidates, without judging any."""
    shown = Grid("problem", "candidate", "type", "about")
    for case in cases:
        kernel = case.candidate.kernel
        shown.add_row(
            *(Text(case.problem.name), Text(case.candidate.label), str(kernel.kernel_type) if kernel else "–"),
            Text(short(case.problem.about))
            if case.refused is None
            else Text(f"cannot be handed over: {case.refused}", DIM),
        )
    console.table(shown)


def _device(outcome: Outcome) -> str:
    environment = outcome.result.environment if outcome.result else {}
    return str(environment.get("gpu_name") or environment.get("device") or "?")


def _part(share: Share) -> str:
    if share.part is None or share.ci_low is None or share.ci_high is None:
        return "–"
    return f"{share.part:.0%} ({share.ci_low:.0%} to {share.ci_high:.0%})"


def _both(share: Share, surely: Share) -> str:
    return "–" if share.part is None else f"{share.part:.0%} ({surely.part:.0%})"


def _mean(found: Mean | None) -> str:
    if found is None:
        return "–"
    problems = "1 problem" if found.of == 1 else f"{found.of} problems"
    return f"{found.ratio:.2f}x ({found.ci_low:.2f} to {found.ci_high:.2f}), {problems}"
