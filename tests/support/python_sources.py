"""The facts about Python files that tests of rules check: imports, names, statements, docstrings and comments.

Parsing the repository takes seconds: each file is parsed once per process, and its syntax tree is not kept, because the
garbage collector would examine millions of nodes after each test.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

MIN_SENTENCE_LENGTH = 12  # characters
STRING_OR_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*""",
    re.DOTALL,
)


@dataclass
class PythonSource:
    """A parsed file. Each fact has its line.

    `imports` has a tuple (module, name, line) for each imported name, with the name "" for `import module`; imports in
    TYPE_CHECKING blocks count. `os_attributes` are the attributes of the module `os` that are used, `raised` the names
    of raised exceptions, `classes` the names of classes, and `conditions` the comparisons and patterns with texts.
    `sentences` are the first paragraphs of docstrings, and comments. `statements` counts the statements that are
    limited, and `nested` has the lines of conditional expressions within others.
    """

    lines: int
    imports: list[tuple[str, str, int]] = field(default_factory=list)
    os_attributes: list[tuple[str, int]] = field(default_factory=list)
    raised: list[tuple[str, int]] = field(default_factory=list)
    classes: list[tuple[str, int]] = field(default_factory=list)
    conditions: list[tuple[frozenset[str], str]] = field(default_factory=list)
    sentences: list[tuple[int, str]] = field(default_factory=list)
    statements: Counter[str] = field(default_factory=Counter)
    nested: list[int] = field(default_factory=list)


def read_import(source: PythonSource, node: ast.Import) -> None:
    source.imports += [(alias.name, "", node.lineno) for alias in node.names]


def read_import_from(source: PythonSource, node: ast.ImportFrom) -> None:
    if node.module:
        source.imports += [(node.module, alias.name, node.lineno) for alias in node.names]


def read_call(source: PythonSource, node: ast.Call) -> None:
    if isinstance(node.func, ast.Name) and node.func.id == "LazyImport":
        source.imports.append((ast.literal_eval(node.args[0]), "", node.lineno))


def read_attribute(source: PythonSource, node: ast.Attribute) -> None:
    if isinstance(node.value, ast.Name) and node.value.id == "os":
        source.os_attributes.append((node.attr, node.lineno))


def read_raise(source: PythonSource, node: ast.Raise) -> None:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    if isinstance(raised, ast.Name):
        source.raised.append((raised.id, node.lineno))


def read_comparison(source: PythonSource, node: ast.Compare) -> None:
    _read_condition(source, node)


def read_case(source: PythonSource, node: ast.match_case) -> None:
    _read_condition(source, node.pattern)


def _read_condition(source: PythonSource, node: ast.Compare | ast.pattern) -> None:
    values = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
    texts = frozenset(value for value in values if isinstance(value, str))
    if texts:
        source.conditions.append((texts, ast.unparse(node)))


def read_definition(source: PythonSource, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> None:
    line = getattr(node, "lineno", 1)
    if isinstance(node, ast.ClassDef):
        source.classes.append((node.name, line))
    docstring = ast.get_docstring(node)
    if docstring:
        source.sentences.append((line, " ".join(docstring.split("\n\n")[0].split())))


def read_assignment(source: PythonSource, node: ast.Assign) -> None:
    if isinstance(node.value, ast.Tuple):
        source.statements["tuple assignments"] += any(isinstance(target, ast.Tuple) for target in node.targets)


def read_conditional_expression(source: PythonSource, node: ast.IfExp) -> None:
    if any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse)):
        source.nested.append(node.lineno)


def read_lambda(source: PythonSource, node: ast.Lambda) -> None:
    source.statements["lambdas"] += 1


READERS: dict[type[ast.AST], Callable[[PythonSource, Any], None]] = {
    ast.Import: read_import,
    ast.ImportFrom: read_import_from,
    ast.Call: read_call,
    ast.Attribute: read_attribute,
    ast.Raise: read_raise,
    ast.Compare: read_comparison,
    ast.match_case: read_case,
    ast.Module: read_definition,
    ast.ClassDef: read_definition,
    ast.FunctionDef: read_definition,
    ast.Assign: read_assignment,
    ast.IfExp: read_conditional_expression,
    ast.Lambda: read_lambda,
}


@cache
def read_source(path: Path) -> PythonSource:
    text = path.read_text()
    source = PythonSource(len(text.splitlines()))
    for node in nodes_of(ast.parse(text)):
        if reader := READERS.get(type(node)):
            reader(source, node)
    for found in STRING_OR_COMMENT.finditer(text):
        if found[0].startswith("#") and len(found[0]) > MIN_SENTENCE_LENGTH:
            source.sentences.append((text.count("\n", 0, found.start()) + 1, found[0].lstrip("# ")))
    return source


def nodes_of(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node in the order of ast.walk, which takes four times as long."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        yield node
        for value in node.__dict__.values():
            if type(value) is list:
                nodes += [inner for inner in value if isinstance(inner, ast.AST)]
            elif isinstance(value, ast.AST):
                nodes.append(value)
