"""Tables in colour, printed with rich."""

import sys

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from llmgateway_cli.tables import GAP, Layout

HEADER_STYLE = "bold cyan"
JUSTIFY: dict[bool, JustifyMethod] = {True: "right", False: "left"}


def print_table(arranged: Layout, width: int | None) -> None:
    """Print a table. The widths of its columns are final; the box adds one column between two of them."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), header_style=HEADER_STYLE
    )
    for column, size in zip(arranged.columns, arranged.widths, strict=True):
        table.add_column(Text(column.title), width=size, no_wrap=True, justify=JUSTIFY[column.number])
    for row in arranged.rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=sys.stdout, width=width, highlight=False)
    console.print(table)
