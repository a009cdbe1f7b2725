"""What holds of the tests themselves."""

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def imports_of(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_what_tests_share_is_imported_from_neither_a_conftest_nor_another_test() -> None:
    for path in TESTS.rglob("*.py"):
        last = {name.rpartition(".")[2] for name in imports_of(path)}
        assert not {name for name in last if name == "conftest" or name.startswith("test_")}, path
