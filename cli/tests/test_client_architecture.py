"""The rules of the client's package: its imports and the size of its files."""

import ast
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[1] / "llmgateway_cli"
FILES = sorted(CLIENT.rglob("*.py"))
MAX_LINES = 400

# Library → the modules that may import it. They are imported when a command needs them.
LIBRARIES = {
    "rich": ("rich_tables",),
    "requests": ("http_client", "failures", "waits"),
}
COMMON = {"click", "llmgateway_cli", *sys.stdlib_module_names}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(CLIENT).with_suffix("").parts)


def imports_of(path: Path) -> list[tuple[str, ast.AST]]:
    """Return the modules that a file imports when it runs, with their statements."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    imports: list[tuple[str, ast.AST]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports += [(f"{node.module}.{alias.name}", node) for alias in node.names]
    return imports


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_imports_only_the_client_and_its_libraries(path: Path) -> None:
    for imported, _ in imports_of(path):
        library = imported.split(".")[0]
        assert library in COMMON or name_of(path) in LIBRARIES[library], imported


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_is_imported_at_the_top(path: Path) -> None:
    late = [imported for imported, node in imports_of(path) if getattr(node, "col_offset", 0)]
    assert late == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_has_less_than_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < MAX_LINES


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_modules_that_are_imported_late_import_slow_ones(path: Path) -> None:
    """A module that imports requests or rich at its top is imported by name, when a command needs it."""
    slow = {f"llmgateway_cli.{module}" for modules in LIBRARIES.values() for module in modules}
    own = f"llmgateway_cli.{name_of(path)}"
    if own not in slow:
        named = {imported for imported, _ in imports_of(path)}
        assert {
            name for name in slow if name in named or any(module.startswith(f"{name}.") for module in named)
        } == set()


def test_every_library_of_the_table_is_used() -> None:
    used = {imported.split(".")[0] for path in FILES for imported, _ in imports_of(path)}
    assert set(LIBRARIES) <= used
