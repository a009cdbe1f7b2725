"""The tables of limits in docs/security.md."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def limits_section() -> str:
    return PAGE.read_text().partition("## Reservations and limits")[2].partition("\n## ")[0]


def documented_operation(path: str) -> str:
    """Return the operation that the page names for the path of a surface's operation, "" without one."""
    method = path.rpartition(">:")[2]
    operation = f"{{model}}:{method}" if method != path else path
    for line in limits_section().splitlines():
        cells = line.strip("|").split("|")
        if line.startswith("| `") and len(cells) == 2 and f"`{operation}`" in cells[1]:
            return cells[0].strip(" `")
    return ""
