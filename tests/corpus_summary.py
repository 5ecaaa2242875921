"""What a corpus came to: caught or accepted, missed, false alarms; one table for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.table import Table


@dataclass
class Tally:
    """One corpus. `wrong` names what was missed or accused falsely, `known` those of them that are expected today."""

    corpus: str
    honest: bool
    judged: int = 0
    wrong: list[str] = field(default_factory=list)
    known: int = 0
    not_begun: int = 0

    def note(self, name: str, *, right: bool, known: bool = False) -> None:
        """One more verdict."""
        self.judged += 1
        if not right:
            self.wrong.append(name)
            self.known += known

    @property
    def clean(self) -> bool:
        return len(self.wrong) == self.known and not self.not_begun


def table(tallies: list[Tally], device: str) -> Table:
    """A line for each corpus: honest ones are accepted or false alarms, the others are caught or missed."""
    lines = Table(
        "corpus", "judged", "caught", "missed", "accepted", "false alarms", "known", "not begun", title=device
    )
    for tally in tallies:
        right, wrong = str(tally.judged - len(tally.wrong)), str(len(tally.wrong))
        counts = ("", "", right, wrong) if tally.honest else (right, wrong, "", "")
        lines.add_row(tally.corpus, str(tally.judged), *counts, str(tally.known), str(tally.not_begun))
    return lines


def wrong_ones(tallies: list[Tally]) -> str:
    """What was missed or accused falsely, by name; a line for each corpus that has any."""
    return "\n".join(f"{tally.corpus}: {', '.join(tally.wrong)}" for tally in tallies if tally.wrong)
