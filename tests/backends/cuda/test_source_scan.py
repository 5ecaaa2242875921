"""Finding `__global__` functions in text, choosing one, and the compiler options that are let through."""

from __future__ import annotations

import pytest

from backends.cuda.compiler_options import translate
from backends.cuda.entry_selection import UnknownKernel, choose
from backends.cuda.source_scan import GlobalFunction, global_functions, host_functions
from domain.fault import KernelFault
from domain.result import Status

SOURCES = {
    "__global__ void k(float* x) {}": ["k"],
    'extern "C" __global__ void k(float* x) {}': ["k"],
    'extern "C" { __global__ void k(float* x) {} __global__ void j() {} }': ["k", "j"],
    "namespace a { namespace { __global__ void k() {} } } __global__ void j() {}": ["a::k", "j"],
    "namespace a::b { inline namespace v1 { __global__ void k() {} } }": ["a::b::v1::k"],
    "__global__ void __launch_bounds__(256, 2) k(int a = f(1)) {}": ["k"],
    "__launch_bounds__(256) static __global__ void k() {}": ["k"],
    "__global__ __attribute__((noinline)) void __cluster_dims__(2, 1, 1) k() {}": ["k"],
    "void __global__ k() {}": ["k"],
    "// __global__ void no() {}\n/* __global__ void no() {} */ __global__ void k() {}": ["k"],
    'const char* s = "__global__ void no() {"; __global__ void k() {}': ["k"],
    "#define K(n) __global__ void n() {}\n#if 0\n__global__ void no() {}\n#endif\n__global__ void k() {}": ["k"],
    "#if 0\n__global__ void no() {}\n#else\n__global__ void k() {}\n#endif": ["k"],
    "__global__ void k(); __device__ int f() { return 1; } __global__ void k() { if (1) { } }": ["k"],
    "struct S { int a[2]; }; __constant__ int t[] = {1'000, 2}; __global__ void k(S s) {}": ["k"],
    "auto __global__ k(int a) -> void {}": ["k"],
    "int main() { return 0; }": [],
    "__global__ void k(": [],
}


@pytest.mark.parametrize(("source", "names"), SOURCES.items())
def test_finds(source: str, names: list[str]) -> None:
    assert [function.name for function in global_functions(source)] == names


@pytest.mark.parametrize(
    "source",
    [
        "#if 0\nx\n#endif\n" * 50_000,
        "#if 0\n#else\n" * 50_000,
        'R"(' * 200_000,
        "'\\" * 300_000,
        '"\\"' * 300_000,
        "namespace a { " * 20_000 + "__global__ void f() {} " * 20_000,
        f"namespace {'::a' * 100_000} {{ {'__global__ void f(); ' * 20_000}",
        f"namespace {'a' * 300_000} {{ {'__global__ void f(); ' * 20_000}",
        f"__global__ void a{'::a' * 200_000}() {{}}",
        f"__global__ void f<{'a ' * 300_000}>() {{}}",
    ],
)
def test_half_a_megabyte_takes_no_time_that_a_builder_would_lack(source: str) -> None:
    """A rule over the square of a source would take hours."""
    global_functions(source)
    host_functions(source)


def test_an_unclosed_literal_hides_the_rest_of_its_line_alone() -> None:
    source = "#if X\n#error don't {\n#endif\n__global__ void k() {}\nconst char* s = \"{;\n__global__ void j() {}"
    assert [function.name for function in global_functions(source)] == ["k", "j"]


def test_dead_blocks_end_where_the_preprocessor_ends_them() -> None:
    source = """
    #if 0
    #if X
    #else
    __global__ void dead() {}
    #endif
    #elif Y
    __global__ void k() {}
    #if 0
    __global__ void dead() {}
    #else
    __global__ void j() {}
    #endif
    #endif
    #if 0
    __global__ void dead() {}
    """
    assert [function.name for function in global_functions(source)] == ["k", "j"]


def test_templates() -> None:
    source = """
    template <typename T, int N = (3 > 2)> __global__ void k(T* x) {}
    template __global__ void k<float, 4>(float*);
    template <> __global__ void k<int, 1>(int* x) {}
    """
    assert global_functions(source) == [
        GlobalFunction("k", template=True), GlobalFunction("k<float,4>"), GlobalFunction("k<int,1>"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "example"),
    [
        ("class T", "float"),
        ("typename T, const int SIZE, bool EVEN", "float, 128, true"),
        ("int N, template <class, int> class Box, typename T = Box<int, 4>", "128, float"),
        ("int N = 1 << 4", ""),
        ("typename T, int N = 1 << 4, int M", "float, 128"),
        ("const int THREADS = 256 / 4", ""),
        ("int A = (3, 4), class T = Pair<int, long>", ""),
    ],
)
def test_what_a_template_lacks(parameters: str, example: str) -> None:
    (function,) = global_functions(f"template <{parameters}> __global__ void k(float* x) {{}}")
    assert function == GlobalFunction("k", template=True, example=example)


@pytest.mark.parametrize("wanted", [None, "k", "ns::k"])
def test_a_template_with_defaults_alone_needs_no_name(wanted: str | None) -> None:
    functions = [GlobalFunction("ns::other", template=True), GlobalFunction("ns::k", template=True, example="")]
    assert choose(functions, wanted, []) == "ns::k<>"
    assert choose(functions, "k<64>", []) == "ns::k<64>"


CHOICES = [
    (["a", "b"], None, [], "a"),
    (["a", "b"], "b", [], "b"),
    (["ns::a"], "a", [], "ns::a"),
    (["ns::a"], "ns::a", [], "ns::a"),
    (["ns::t<>"], "t<float, 4>", [], "ns::t<float, 4>"),
    (["t<>"], "t", ["t<int>"], "t<int>"),
    (["t<>"], None, ["t<int>"], "t<int>"),
    (["t<>", "b"], None, [], "b"),
    (["t<>", "t<float>"], "t", [], "t<float>"),
    (["a"], "other", [], None),
    ([], None, [], None),
]


@pytest.mark.parametrize(("names", "wanted", "expressions", "chosen"), CHOICES)
def test_chooses(names: list[str], wanted: str | None, expressions: list[str], chosen: str | None) -> None:
    functions = [GlobalFunction(name.removesuffix("<>"), name.endswith("<>")) for name in names]
    assert choose(functions, wanted, expressions) == chosen


@pytest.mark.parametrize(
    ("names", "wanted", "says"),
    [(["t<>"], "t", "instantiation"), (["t<>"], None, "t<float>"), (["a::k", "b::k"], "k", "or")],
)
def test_says_what_it_cannot_choose(names: list[str], wanted: str | None, says: str) -> None:
    functions = [GlobalFunction(name.removesuffix("<>"), name.endswith("<>")) for name in names]
    with pytest.raises(UnknownKernel, match=says):
        choose(functions, wanted, [])


def test_options() -> None:
    given = ["-O3", "--use_fast_math", "-D", "A=1", "-D B", "-std=c++17", "-Xptxas", "-O2,-v", "--maxrregcount=64"]
    options, notes = translate({"compiler_options": given})
    assert options == [
        "--use_fast_math", "-DA=1", "-DB", "-std=c++17", "--ptxas-options=-O2", "--ptxas-options=-v",
        "--maxrregcount=64",
    ]  # fmt: skip
    assert len(notes) == 1 and "-O3" in notes[0]
    options, notes = translate({"compiler_options": ["--extended-lambda"]})
    assert not options and "leave __device__ off the lambda" in notes[0]
    assert translate({"compile_options": "-lineinfo -DX='a b'"})[0] == ["-lineinfo", "-DX=a b"]


@pytest.mark.parametrize(
    "option", ["-I/etc", "--include-path=/etc", "-arch=sm_80", "--pre-include=/etc/passwd", "-dlto", "@x"]
)
def test_options_that_are_refused(option: str) -> None:
    with pytest.raises(KernelFault) as caught:
        translate({"compiler_options": ["-DX", option]})
    assert caught.value.status is Status.COMPILE_ERROR
    assert option in caught.value.message and "--use_fast_math" in caught.value.message
