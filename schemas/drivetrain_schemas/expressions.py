"""Constraints between hyperparameters, such as `width * depth <= 4096`: read, checked, evaluated.

The language is a small part of Python's: numbers, text in quotes, true and false, names,
`+ - * / // % **`, comparisons, `and or not`, `min max abs`. Nothing else is read, so nothing else
can run, and evaluation is bounded: an expression has at most MAX_CHARACTERS, a whole number at most
MAX_BITS. What has no value (a division by zero, a number too large) does not satisfy a constraint.
"""

import ast
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from drivetrain_schemas.base import Misfit

MAX_CHARACTERS = 512
MAX_NODES = 128
MAX_BITS = 1024

Value = bool | int | float | str


class Kind(StrEnum):
    NUMBER = "a number"
    TEXT = "text"
    BOOLEAN = "true or false"


Kinds = frozenset[Kind]
_NUMBER = frozenset({Kind.NUMBER})
_BOOLEAN = frozenset({Kind.BOOLEAN})
_SYNTAX_FIX = "write a comparison such as width * depth <= 4096"

_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_ORDER: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"min": min, "max": max, "abs": abs}
_CONSTANTS: Mapping[str, bool] = {"true": True, "false": False}


class _HasNoValue(Exception):
    """The expression has no value at this point."""


@dataclass(frozen=True)
class Expression:
    """A constraint by its text; `parse` makes one."""

    text: str

    @cached_property
    def _tree(self) -> ast.expr:
        return _parsed(self.text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The hyperparameters it reads."""
        return frozenset(_names(self._tree))

    def holds(self, point: Mapping[str, Value]) -> bool:
        """Whether it is satisfied; `point` has a value for each of its names."""
        try:
            return _evaluate(self._tree, point) is True
        except (_HasNoValue, ArithmeticError, ValueError):
            return False


def parse(text: str) -> Expression:
    """The expression; raises Misfit for what is not in the language."""
    expression = Expression(text)
    for node in _inside(expression._tree):
        _check_node(node)
    return expression


def check(expression: Expression, kinds: Mapping[str, Kinds]) -> None:
    """Raises Misfit unless it is a comparison between values of kinds that can be compared."""
    for name in sorted(expression.names - kinds.keys()):
        names = ", ".join(sorted(kinds))
        raise Misfit(f"{name:.80} is not a parameter of the space", fix=f"use {names:.400}")
    if _kinds(expression._tree, kinds) != _BOOLEAN:
        raise Misfit("is not a comparison", fix=_SYNTAX_FIX)


def kind_of(value: Value) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    return Kind.TEXT if isinstance(value, str) else Kind.NUMBER


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise Misfit("is too long", fix=f"write at most {MAX_CHARACTERS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        detail = "cannot be read (and words of Python, such as lambda, cannot be names here)"
        raise Misfit(detail, fix=_SYNTAX_FIX) from error
    if sum(1 for _ in ast.walk(tree)) > 4 * MAX_NODES:
        raise Misfit("is too long", fix="split it into several constraints")
    return tree


def _inside(tree: ast.expr) -> Iterator[ast.expr]:
    """Every expression in it, without the names of functions that are called."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr):
            yield node
        is_call = isinstance(node, ast.Call)
        waiting += [
            child
            for field, value in ast.iter_fields(node)
            if not (is_call and field == "func")
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        ]


def _names(tree: ast.expr) -> Iterator[str]:
    for node in _inside(tree):
        if isinstance(node, ast.Name) and node.id not in _CONSTANTS:
            yield node.id


def _check_node(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=bool() | str()) | ast.Name():
            return
        case ast.Constant(value=int() | float() as number):
            if not math.isfinite(number) or abs(number) >= 2**MAX_BITS:
                raise Misfit("holds a number that is too large", fix="write a smaller number")
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()) | ast.BoolOp():
            return
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            return
        case ast.Compare(ops=ops) if all(type(op) in {*_ORDER, ast.Eq, ast.NotEq} for op in ops):
            return
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if (len(args) == 1) != (name == "abs"):
                need = "one value" if name == "abs" else "two values or more"
                raise Misfit(f"{name} needs {need}", fix="correct the number of its values")
        case _:
            raise Misfit(
                f"holds {_shown(node)}, which constraints do not have",
                fix="use numbers, names, + - * / // % **, comparisons, and or not, min max abs",
            )


def _shown(node: ast.expr) -> str:
    return f"{ast.unparse(node):.60}"


def _kinds(node: ast.expr, kinds: Mapping[str, Kinds]) -> Kinds:
    """The kinds of value it may have; raises Misfit where parts cannot be put together."""
    match node:
        case ast.Constant(value=value):
            assert isinstance(value, bool | int | float | str)
            return frozenset({kind_of(value)})
        case ast.Name(id=name):
            return _BOOLEAN if name in _CONSTANTS else kinds[name]
        case ast.UnaryOp(op=op, operand=operand):
            return _need(_BOOLEAN if isinstance(op, ast.Not) else _NUMBER, (operand,), kinds)
        case ast.BoolOp(values=values):
            return _need(_BOOLEAN, values, kinds)
        case ast.BinOp(left=left, right=right):
            return _need(_NUMBER, (left, right), kinds)
        case ast.Call(args=args):
            return _need(_NUMBER, args, kinds)
        case ast.Compare():
            _check_comparison(node, kinds)
            return _BOOLEAN
    raise AssertionError(f"not in the language: {node}")


def _need(
    wanted: Kinds, parts: list[ast.expr] | tuple[ast.expr, ...], kinds: Mapping[str, Kinds]
) -> Kinds:
    for part in parts:
        found = _kinds(part, kinds)
        if found != wanted:
            (want,) = wanted
            raise Misfit(
                f"{_shown(part)} may be {_words(found - wanted)}, and only {want} fits there",
                fix="compare numbers with numbers; text only by == and !=",
            )
    return wanted


def _check_comparison(node: ast.Compare, kinds: Mapping[str, Kinds]) -> None:
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        if type(op) in _ORDER:
            _need(_NUMBER, (left, right), kinds)
        else:
            first, second = _kinds(left, kinds), _kinds(right, kinds)
            if not first & second:
                raise Misfit(
                    f"{_shown(left)} is {_words(first)} and {_shown(right)} is {_words(second)}: "
                    "they are never equal",
                    fix="compare numbers with numbers and text with text in quotes",
                )
        left = right


def _words(kinds: Kinds) -> str:
    return " or ".join(sorted(kinds))


def _evaluate(node: ast.expr, point: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value=value):
            assert isinstance(value, bool | int | float | str)
            return value
        case ast.Name(id=name):
            return _CONSTANTS[name] if name in _CONSTANTS else point[name]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, point)
        case ast.UnaryOp(op=op, operand=operand):
            value = _number(operand, point)
            return -value if isinstance(op, ast.USub) else value
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_evaluate(value, point) for value in values)
        case ast.BoolOp(values=values):
            return any(_evaluate(value, point) for value in values)
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(type(op), _number(left, point), _number(right, point))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_number(arg, point) for arg in args))
        case ast.Compare():
            return _compare(node, point)
    raise AssertionError(f"not in the language: {node}")


def _number(node: ast.expr, point: Mapping[str, Value]) -> float:
    value = _evaluate(node, point)
    if isinstance(value, bool | str):
        raise _HasNoValue
    return value


def _arithmetic(op: type[ast.operator], left: float, right: float) -> float:
    if op is ast.Pow and isinstance(left, int) and isinstance(right, int):
        if abs(left) > 1 and left.bit_length() * right > MAX_BITS:
            raise _HasNoValue
        if right < -MAX_BITS:
            raise _HasNoValue
    value = _ARITHMETIC[op](left, right)
    if isinstance(value, complex):
        raise _HasNoValue
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise _HasNoValue
    elif not math.isfinite(value):
        raise _HasNoValue
    return value


def _compare(node: ast.Compare, point: Mapping[str, Value]) -> bool:
    left = _evaluate(node.left, point)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(comparator, point)
        if type(op) in _ORDER:
            if isinstance(left, bool | str) or isinstance(right, bool | str):
                raise _HasNoValue
            is_so = _ORDER[type(op)](left, right)
        else:
            # In Python 1 and true are equal; to a program they are two values.
            is_equal = kind_of(left) is kind_of(right) and left == right
            is_so = is_equal == isinstance(op, ast.Eq)
        if not is_so:
            return False
        left = right
    return True
