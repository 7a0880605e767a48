"""What can be changed in the functions of a module, one change at a time, and the changed code."""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

_PAIRS = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.BitOr, ast.BitAnd),
    ("min", "max"),
    ("any", "all"),
]
_SWAPPED: dict[Any, Any] = (
    dict(_PAIRS) | {second: first for first, second in _PAIRS} | {ast.FloorDiv: ast.Div}
)
_LARGE = 100  # one more than this hardly shows: larger numbers are doubled
_NO_CODE = {"annotation", "returns", "decorator_list"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NEGATED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.NamedExpr)


@dataclass(frozen=True, slots=True)
class Mutant:
    """The change number `index` of a file. `before` and `after` are the statement's first line."""

    file: str
    index: int
    line: int
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.before}  ->  {self.after}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Names the change, also after lines before it have moved."""
        return self.file, self.function, self.after


@dataclass(frozen=True, slots=True)
class _Change:
    old: ast.AST
    new: ast.AST
    statement: ast.AST
    function: str
    line: int


def mutants(root: Path, file: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its text."""
    found = []
    for index, change in enumerate(_changes(ast.parse((root / file).read_text()))):
        before = _first_line(change.statement)
        after = _first_line(_Replacing(change.old, change.new).visit(change.statement))
        _Replacing(change.new, change.old).visit(change.statement)
        found.append(Mutant(file, index, change.line, change.function, before, after))
    return found


def compiled(root: Path, mutant: Mutant) -> tuple[CodeType, CodeType]:
    """The code of the mutant's module without and with the change."""
    path = root / mutant.file
    tree = ast.parse(path.read_text())
    original = compile(tree, path, "exec")
    change = _changes(tree)[mutant.index]
    _Replacing(change.old, change.new).visit(tree)
    return original, compile(ast.fix_missing_locations(tree), path, "exec")


def equivalents(file: Path) -> dict[tuple[str, str, str], str]:
    """Mutants that behave as the original does, each with the reason."""
    listed = tomllib.loads(file.read_text()).get("equivalent", [])
    return {(each["file"], each["function"], each["mutant"]): each["reason"] for each in listed}


class _Replacing(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


def _first_line(statement: ast.AST) -> str:
    return ast.unparse(statement).strip().splitlines()[0]


def _changes(tree: ast.AST) -> list[_Change]:
    """Only what stands inside of a function: that is the code which a test can call."""
    return list(_walk(tree, tree, (), False))


def _walk(
    node: ast.AST, statement: ast.AST, names: tuple[str, ...], inside: bool
) -> Iterator[_Change]:
    if isinstance(node, ast.stmt | ast.match_case):
        statement = node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = (*names, node.name)
    if inside:
        for old, new in _alternatives(node):
            line = getattr(old, "lineno", 0)
            yield _Change(old, ast.copy_location(new, old), statement, ".".join(names), line)
    for field, value in ast.iter_fields(node):
        if field in _NO_CODE:
            continue
        within = inside or (isinstance(node, _FUNCTIONS) and field == "body")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, statement, names, within)


def _alternatives(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    match node:
        case ast.Compare(left, operators, right):
            for place, operator in enumerate(operators):
                swapped = [*operators]
                swapped[place] = _SWAPPED[type(operator)]()
                yield node, ast.Compare(left, swapped, right)
        case ast.BoolOp(operator, values) if type(operator) in _SWAPPED:
            yield node, ast.BoolOp(_SWAPPED[type(operator)](), values)
        case ast.BinOp(left, operator, right) if type(operator) in _SWAPPED:
            yield node, ast.BinOp(left, _SWAPPED[type(operator)](), right)
        case ast.AugAssign(target, operator, value) if type(operator) in _SWAPPED:
            yield node, ast.AugAssign(target, _SWAPPED[type(operator)](), value)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield node, operand
        case ast.Constant(int(value) | float(value)) if not isinstance(value, bool):
            yield node, ast.Constant(value + (1 if value < _LARGE else value))
        case ast.Call(ast.Name(name), arguments, keywords) if name in _SWAPPED:
            yield node, ast.Call(ast.Name(_SWAPPED[name], ast.Load()), arguments, keywords)
        case ast.comprehension(ifs=[*tests]):
            yield from _negated(tests)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield from _negated([test])


def _negated(tests: list[ast.expr]) -> Iterator[tuple[ast.AST, ast.AST]]:
    for test in tests:
        if isinstance(test, _NEGATED):
            yield test, ast.UnaryOp(ast.Not(), test)
