"""Every error code the source can raise, found by reading it: literals, class codes, and codes made of a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import holdfast

SOURCE = Path(next(iter(holdfast.__path__)))

# Functions that make a code of a word they are given: where the word stands among the arguments, and what comes of it.
MAKERS = {
    "check_name": (1, ("invalid_{}",)),
    "check_names": (1, ("invalid_{}",)),
    "_check_number": (1, ("invalid_{}",)),
    "encode": (1, ("{}_not_json", "{}_too_large")),
    "UnknownName.of": (0, ("unknown_{}",)),
    "_known": (1, ("unknown_{}",)),
}
INSIDE = {*(maker.rpartition(".")[2] for maker in MAKERS), "_refuse"}  # model/json.py refuses what encode was given

Function = ast.FunctionDef | ast.AsyncFunctionDef


def error_codes() -> set[str]:
    return {code for path in SOURCE.rglob("*.py") for code in codes_in(path.read_text(encoding="utf-8"))}


def codes_in(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=lines):
                yield from _class_codes(lines)
            case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                yield code
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _made_codes(node)


def _class_codes(lines: list[ast.stmt]) -> Iterator[str]:
    for line in lines:
        match line:
            case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
                yield code


def _made_codes(function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Call(func=maker, args=arguments) if ast.unparse(maker) in MAKERS:
                place, forms = MAKERS[ast.unparse(maker)]
            case ast.keyword(arg="code", value=ast.JoinedStr(values=[ast.Constant(value=prefix), made])):
                arguments, place, forms = [made.value], 0, (f"{prefix}{{}}",)
            case _:
                continue
        for word in _words(arguments[place], function):
            yield from (form.format(word.replace(" ", "_")) for form in forms)


def _words(argument: ast.expr, function: Function) -> list[str]:
    """The words an argument can be: a literal, or a loop's variable. Inside a maker, its callers know."""
    match argument:
        case ast.Constant(value=str(word)):
            return [word]
        case ast.Name(id=name) if words := list(_looped_over(name, function)):
            return words
    assert function.name in INSIDE, f"{function.name} makes codes of words it is given: add it to MAKERS"
    return []


def _looped_over(name: str, function: Function) -> Iterator[str]:
    for loop in ast.walk(function):
        if isinstance(loop, ast.For | ast.comprehension) and name in ast.unparse(loop.target).strip("()").split(", "):
            yield from (node.value for node in ast.walk(loop.iter) if isinstance(node, ast.Constant))
