"""What a worker has is made once."""

import ast
from collections import Counter
from pathlib import Path

WIRING = Path(__file__).resolve().parents[2] / "gateway" / "wiring.py"
# Made in one of two ways, never in both.
EITHER = {"Pins"}


def test_the_wiring_makes_nothing_twice():
    tree = ast.parse(WIRING.read_text())
    made = Counter(
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id[:1].isupper()
    )
    assert {name for name, count in made.items() if count > 1} <= EITHER
    assert {"Vault", "Funding", "Settlements", "Services"} <= set(made)
    assert not {"Budgets", "LedgerBook"} & set(made), "the funding of the management API has them already"
