"""Names that mean nothing here, and which one was probably meant."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

# What Kubernetes sets in every container for services that are called "gateway" or "llm".
FOREIGN = re.compile(r"(GATEWAY|LLM)_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(TCP|UDP)\w*)")
SHOWN = 2
LIKENESS = 0.7
BEGINNING = 3


def near(name: str, known: Iterable[str]) -> str:
    """ "; did you mean …?" with the names that look most like `name`, or else begin with it; "" when none does."""
    by_lower = {one.lower(): one for one in known}
    found = (
        difflib.get_close_matches(name.lower(), by_lower, SHOWN, LIKENESS)
        or [one for one in sorted(by_lower) if len(name) >= BEGINNING and one.startswith(name.lower())][:SHOWN]
    )
    if found:
        return f"; did you mean {' or '.join(by_lower[one] for one in found)}?"
    return ""


def unknown_variables(environment: Mapping[str, str], prefix: str, known: Collection[str]) -> list[str]:
    """A line for each variable that begins with `prefix`, is not among `known` (nor one of them with _FILE), and is
    not of a kind that platforms set by themselves."""
    full = {*known, *(f"{name}_FILE" for name in known)}
    return [
        f"{name}: there is no such setting{near(name, full if name.endswith('_FILE') else known)}"
        for name in sorted(environment)
        if name.startswith(prefix) and name not in full and not FOREIGN.fullmatch(name)
    ]
