"""Problem suites: references with candidates, read from folders of several layouts, judged and scored."""

from kernel_eval_client.suites.problem import Candidate, Case, Problem, cases
from kernel_eval_client.suites.reading import STARTER, read
from kernel_eval_client.suites.scoring import Outcome, Score, score

__all__ = ["STARTER", "Candidate", "Case", "Outcome", "Problem", "Score", "cases", "read", "score"]
