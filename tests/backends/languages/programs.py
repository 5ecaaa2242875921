"""Three programs in each language (`submissions/`), each with a line to break so that it compiles and is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from domain.kernel import Kernel, KernelType

FOLDER = Path(__file__).with_name("submissions")


@dataclass(frozen=True)
class Task:
    """What a program computes of `args`, and the expressions of its inputs."""

    expected: str
    inputs: tuple[str, ...]

    @property
    def get_inputs(self) -> str:
        return f"\n\ndef get_inputs():\n    return [{', '.join(self.inputs)}]\n"

    @property
    def reference(self) -> Kernel:
        source = f"class Model(torch.nn.Module):\n    def forward(self, *args):\n        return {self.expected}\n"
        return Kernel(f"import torch\n\n\n{source}{self.get_inputs}", KernelType.TORCH, is_reference=True)


TASKS = {
    "vector_add": Task("args[0] + args[1]", ("torch.randn(100_000)", "torch.randn(100_000)")),
    "softmax": Task("torch.softmax(args[0], -1)", ("torch.randn(256, 512)",)),
    "matmul": Task("args[0] @ args[1]", ("torch.randn(256, 128).half()", "torch.randn(128, 512).half()")),
}


@dataclass(frozen=True)
class Program:
    """A file of `submissions/`. With `right` replaced by `wrong` some of its outputs are wrong."""

    language: str
    task: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.language}_{self.task}"

    def kernel(self, *, wrong: bool = False) -> Kernel:
        source = (FOLDER / f"{self}.py").read_text(encoding="utf-8") + TASKS[self.task].get_inputs
        assert source.count(self.right) == 1
        return Kernel(source.replace(self.right, self.wrong) if wrong else source, KernelType(self.language))


PROGRAMS = (
    Program("gluon", "vector_add", "inside = at < n", "inside = at < n - 9"),
    Program("gluon", "softmax", "gl.sum(weights, 0)", "gl.max(weights, 0)"),
    Program("gluon", "matmul", "range(0, depth, DEPTH)", "range(DEPTH, depth, DEPTH)"),
    Program("helion", "vector_add", "x[at] + y[at]", "x[at] - y[at]"),
    Program("helion", "softmax", "torch.sum(weights, dim=1, keepdim=True)", "torch.amax(weights, dim=1, keepdim=True)"),
    Program("helion", "matmul", "total.to(out.dtype)", "(total * 1.1).to(out.dtype)"),
    Program("tilelang", "vector_add", "x[at * block + i] +", "x[at * block] +"),
    Program("tilelang", "softmax", "T.reduce_sum(values, total, dim=1)", "T.reduce_max(values, total, dim=1)"),
    Program("tilelang", "matmul", "T.Pipelined(depth // step,", "T.Pipelined(depth // step - 1,"),
    Program("cute_dsl", "vector_add", "if at < cute.size(x):", "if at < cute.size(x) - 9:"),
    Program("cute_dsl", "softmax", "lambda one, other: one + other", "cutlass.max"),
    Program("cute_dsl", "matmul", "range(cute.size(a, mode=[1]))", "range(cute.size(a, mode=[1]) - 9)"),
)
