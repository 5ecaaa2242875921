"""Finds the functions of a CUDA source, on the device and on the host, by scanning its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HIDDEN = re.compile(
    r"""//(?:\\\n|[^\n])*
    | /\*.*?(?:\*/|\Z)
    | R"(?P<tag>[^()\s\\]{0,16})\(.*?(?:\)(?P=tag)"|\Z)
    | "(?:\\.|[^"\\\n])*+"?
    | (?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*+'?""",
    re.VERBOSE | re.DOTALL,
)
"""An unclosed literal ends with its line, or the source: else each quote would be looked for to the end."""
_DIRECTIVE = re.compile(r"^[ \t]*\#(?:\\\n|[^\n])*", re.MULTILINE)
_IF_ZERO = re.compile(r"^[ \t]*\#[ \t]*if[ \t]+0[ \t]*\Z")
_CONDITION = re.compile(r"^[ \t]*\#[ \t]*(if|ifdef|ifndef|else|elif|endif)\b[^\n]*", re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|<<|[^\s\w]|\d[\w.]*")
_WORD = re.compile(r"[A-Za-z_]\w*\Z")
MAX_SCOPES, MAX_SCOPE_CHARS = 64, 1024
"""Maximum depth of namespaces, and length of their names together. Every name of a function repeats them; functions in
deeper ones are not found."""
_NESTING = {"(": ")", "<": ">", "[": "]"}
_NOT_OF_HOST = frozenset({"__global__", "__device__", "struct", "class", "union", "enum", "operator", "=", "template"})


@dataclass(frozen=True)
class GlobalFunction:
    """One `__global__` function as NVRTC names it: `ns::k`, or `ns::k<float, 4>` for an explicit instantiation.

    `template` means that the name needs template arguments, such as `example`. The example is empty where all of them
    have defaults.
    """

    name: str
    template: bool = False
    example: str = "float"


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def without_comments(source: str) -> str:
    """The source with comments blanked; literals and line numbers stay."""
    return _HIDDEN.sub(lambda match: _blank(match) if match[0].startswith("/") else match[0], source)


def visible_code(source: str) -> str:
    """The source with comments, literals, directives and `#if 0` blocks blanked; line numbers stay."""
    code = _HIDDEN.sub(_blank, source)
    return _DIRECTIVE.sub(_blank, _without_dead_blocks(code))


def _without_dead_blocks(code: str) -> str:
    """The text with each `#if 0` blanked up to its `#else` or `#endif`, in one pass."""
    parts: list[str] = []
    end = start = depth = 0
    for line in _CONDITION.finditer(code):
        if depth == 0:
            if _IF_ZERO.match(line[0]):
                start, depth = line.start(), 1
            continue
        depth += {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(line[1], 0)
        if depth == 0 or (depth == 1 and line[1] in ("else", "elif")):
            parts += [code[end:start], re.sub(r"[^\n]", " ", code[start : line.end()])]
            end, depth = line.end(), 0
    return "".join(parts) + (code[end:start] + re.sub(r"[^\n]", " ", code[start:]) if depth else code[end:])


def global_functions(source: str) -> list[GlobalFunction]:
    """Every `__global__` function at namespace scope, in order, without repetition."""
    functions: dict[str, GlobalFunction] = {}
    for scope, declaration, _ in _declarations(_TOKEN.findall(visible_code(source))):
        function = _function(scope, declaration) if "__global__" in declaration else None
        if function is not None:
            functions.setdefault(function.name, function)
    return list(functions.values())


def host_functions(source: str) -> dict[str, frozenset[str]]:
    """Every function for the host that the source defines at namespace scope except `main`, in order.

    Each has the words of its declaration.
    """
    functions: dict[str, frozenset[str]] = {}
    for scope, declaration, is_definition in _declarations(_TOKEN.findall(visible_code(source))):
        words = frozenset(declaration)
        head = declaration[: declaration.index("(")] if "(" in words else []
        if is_definition and head and not _NOT_OF_HOST.intersection(head) and "__device__" not in words:
            function = _function(scope, declaration)
            if function is not None and function.name != "main" and not function.name.isupper():
                functions.setdefault(function.name, words)
    return functions


def _declarations(tokens: list[str]) -> Iterator[tuple[list[str], list[str], bool]]:
    """Each declaration at namespace scope: the names of the namespaces around it, its tokens, and whether a block
    follows."""
    scopes: list[list[str]] = []
    names: list[str] = []
    pending: list[str] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token == "{":
            namespace = _namespace(pending)
            deep = len(scopes) >= MAX_SCOPES or len("::".join([*names, *(namespace or ())])) > MAX_SCOPE_CHARS
            if namespace is None or deep:
                yield names, pending, True
                position = _after_block(tokens, position)
            else:
                scopes.append(namespace)
                names = [name for scope in scopes for name in scope]
            pending = []
        elif token == "}":
            if scopes:
                scopes.pop()
                names = [name for scope in scopes for name in scope]
            pending = []
        elif token == ";":
            yield names, pending, False
            pending = []
        else:
            pending.append(token)


def _namespace(opening: list[str]) -> list[str] | None:
    """The names that a `{` after these tokens adds; None when it opens no namespace.

    An unnamed namespace and `extern "C" {` (its literal is blanked) add no name.
    """
    if opening[-1:] == ["extern"]:
        return []
    if "namespace" not in opening:
        return None
    return [word for word in opening[opening.index("namespace") + 1 :] if _WORD.match(word) and word != "inline"]


def _after_block(tokens: list[str], position: int) -> int:
    depth = 1
    while position < len(tokens) and depth:
        depth += {"{": 1, "}": -1}.get(tokens[position], 0)
        position += 1
    return position


def _function(scope: list[str], declaration: list[str]) -> GlobalFunction | None:
    """The declared function: the last `name(…)` or `name<…>(…)`, because attributes precede it."""
    template = instantiated = False
    example = ""
    if "template" in declaration:
        after = declaration.index("template") + 1
        template = declaration[after : after + 1] == ["<"] and declaration[after + 1 : after + 2] != [">"]
        start = _after_nested(declaration, after) if declaration[after : after + 1] == ["<"] else after
        example = _example(declaration[after + 1 : start - 1])
        declaration = declaration[start:]
    name: list[str] = []
    position = 0
    while position < len(declaration):
        if not _WORD.match(declaration[position]):
            position += 1
            continue
        candidate, following = _qualified(declaration, position)
        if declaration[following : following + 1] == ["("]:
            name, instantiated = candidate, candidate[-1] == ">"
            following = _after_nested(declaration, following)
            if declaration[following : following + 1] == ["->"]:
                break
        position = following
    if not name:
        return None
    if instantiated or not template:
        return GlobalFunction(_spell(scope, name))
    return GlobalFunction(_spell(scope, name), True, example)


def _example(parameters: list[str]) -> str:
    """Sample arguments for the template parameters without a default: a type, a truth value or a number each."""
    arguments = []
    for parameter in _parted(parameters):
        if "=" not in parameter:
            kind = next((word for word in parameter if word in ("typename", "class", "bool")), "")
            arguments.append({"": "128", "bool": "true"}.get(kind, "float"))
    return ", ".join(arguments)


def _parted(parameters: list[str]) -> Iterator[list[str]]:
    """The tokens between commas outside of brackets."""
    part: list[str] = []
    position = 0
    while position < len(parameters):
        if parameters[position] == ",":
            yield part
            part = []
            position += 1
            continue
        following = _after_nested(parameters, position) if parameters[position] in _NESTING else position + 1
        part += parameters[position:following]
        position = following
    yield part


def _qualified(tokens: list[str], position: int) -> tuple[list[str], int]:
    """The tokens of a possibly qualified, possibly instantiated name, and the position after it."""
    start = position
    position += 1
    while position < len(tokens):
        if tokens[position] == "::" and position + 1 < len(tokens) and _WORD.match(tokens[position + 1]):
            position += 2
        elif tokens[position] == "<":
            position = _after_nested(tokens, position)
        else:
            break
    return tokens[start:position], position


def _after_nested(tokens: list[str], position: int) -> int:
    """The position after the bracket that closes the one at `position`; angle brackets end early at a `;` or `{`."""
    closers: list[str] = []
    while position < len(tokens):
        token = tokens[position]
        if token in _NESTING and not (token == "<" and closers and closers[-1] != ">"):
            closers.append(_NESTING[token])
        elif closers and token == closers[-1]:
            closers.pop()
            if not closers:
                return position + 1
        position += 1
    return position


def _spell(scope: list[str], name: list[str]) -> str:
    spelled = ""
    for token in name:
        both_words = spelled and _WORD.match(token) and re.match(r"\w", spelled[-1])
        spelled += (" " if both_words else "") + token
    return "::".join([*scope, spelled])
