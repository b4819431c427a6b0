"""Every error code the source can raise, found by reading it: literals, class codes, and codes made of a word.

`code=f"invalid_{what}"` makes a code of a word, `code=code` of the word itself. If the word is an argument, the
function is a maker of codes, and so is whoever hands its own argument on to a maker. Where a literal is handed in at
last, the code is known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import holdfast

SOURCE = Path(next(iter(holdfast.__path__)))


def error_codes() -> set[str]:
    faults = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("faults.py"))
    return codes_in(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))).union(
        *map(_constants, faults)
    )


def _constants(module: str) -> set[str]:
    """Of a module that declares codes."""
    return {
        str(node.value.value)
        for node in ast.parse(module).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }


def codes_in(modules: Iterable[str]) -> set[str]:
    trees = [ast.parse(source) for source in modules]
    plain = {code for tree in trees for node in ast.walk(tree) for code in _plain_codes(node)}
    functions = [function for tree in trees for function in _functions(tree)]
    makers: dict[str, set[_Make]] = {}
    while found := {(f.name, make) for f in functions for make in f.makes(makers)} - _pairs(makers):
        for name, make in found:
            makers.setdefault(name, set()).add(make)
    return plain | {code for function in functions for code in function.codes(makers)}


_REPORTS = {"Fail", "Rejection"}
_DEF = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Make:
    """The argument at `place` becomes a code of this form."""

    place: int
    form: str


def _pairs(makers: dict[str, set[_Make]]) -> set[tuple[str, _Make]]:
    return {(name, make) for name, makes in makers.items() for make in makes}


def _plain_codes(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
            yield code
        case ast.ClassDef(body=lines):
            for line in lines:
                match line:
                    case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
                        yield code


@dataclass(frozen=True)
class _Function:
    """`name` is the one it is called by: `.check` for a method, `UnknownName.of` for one of a class; with its module in
    front if it is private."""

    name: str
    parameters: list[str]
    node: ast.FunctionDef | ast.AsyncFunctionDef
    module: ast.Module

    @classmethod
    def of(cls, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, module: ast.Module) -> _Function:
        match [argument.arg for argument in node.args.posonlyargs + node.args.args]:
            case ["self", *parameters]:
                return cls(f".{node.name}", parameters, node, module)
            case ["cls", *parameters]:
                return cls(f"{owner}.{node.name}", parameters, node, module)
            case parameters:
                return cls(_private(node.name, module), parameters, node, module)

    def makes(self, makers: dict[str, set[_Make]]) -> Iterator[_Make]:
        for word, form in self._uses(makers):
            if isinstance(word, ast.Name) and word.id in self.parameters:
                yield _Make(self.parameters.index(word.id), form)

    def codes(self, makers: dict[str, set[_Make]]) -> Iterator[str]:
        for word, form in self._uses(makers):
            for text in self._words(word):
                yield form.format(text.replace(" ", "_"))

    def _uses(self, makers: dict[str, set[_Make]]) -> Iterator[tuple[ast.expr, str]]:
        """Words that become codes in here, and the form they take. The code of a report is the handler's own."""
        calls = [node for node in ast.walk(self.node) if isinstance(node, ast.Call)]
        reported = {keyword for call in calls if _last_name(call.func) in _REPORTS for keyword in call.keywords}
        for node in ast.walk(self.node):
            match node:
                case ast.keyword() if node in reported:
                    pass
                case ast.keyword(arg="code", value=ast.JoinedStr(values=parts)):
                    [made] = [part for part in parts if isinstance(part, ast.FormattedValue)]
                    form = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
                    yield next(n for n in ast.walk(made) if isinstance(n, ast.Name)), form
                case ast.keyword(arg="code", value=ast.Name(id=name) as word) if name in self.parameters:
                    yield word, "{}"
                case ast.Call(func=ast.Name(id=name), args=arguments):
                    yield from _handed(arguments, makers.get(_private(name, self.module), ()))
                case ast.Call(func=ast.Attribute(value=owner, attr=name), args=arguments):
                    yield from _handed(arguments, makers.get(f".{name}", ()))
                    yield from _handed(arguments, makers.get(f"{_last_name(owner)}.{name}", ()))

    def _words(self, word: ast.expr) -> list[str]:
        """A literal, or a loop's variable; what is handed in is known where it is handed in."""
        match word:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.Name(id=name) if name in self.parameters:
                return []
            case ast.Name(id=name) if looped := list(self._looped_over(name)):
                return looped
        raise AssertionError(f"{self.name}: cannot tell what the code made of {ast.unparse(word)} can be")

    def _looped_over(self, name: str) -> Iterator[str]:
        for loop in ast.walk(self.node):
            if isinstance(loop, ast.For | ast.comprehension):
                targets = [node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
                if name in targets:
                    yield from (str(node.value) for node in ast.walk(loop.iter) if isinstance(node, ast.Constant))


def _functions(module: ast.Module) -> Iterator[_Function]:
    classes = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    owners = {line: owner.name for owner in classes for line in owner.body}
    for node in ast.walk(module):
        if isinstance(node, _DEF):
            yield _Function.of(node, owners.get(node, ""), module)


def _handed(arguments: list[ast.expr], makes: Iterable[_Make]) -> Iterator[tuple[ast.expr, str]]:
    return ((arguments[make.place], make.form) for make in makes if make.place < len(arguments))


def _last_name(of: ast.expr) -> str:
    """`errors.Invalid` is called `Invalid`, wherever it was imported from; what has no name has none."""
    match of:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _private(name: str, module: ast.Module) -> str:
    return f"{id(module)}{name}" if name.startswith("_") else name
