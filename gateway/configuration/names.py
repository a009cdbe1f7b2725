"""Unknown names, with suggestions of similar known ones."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

# Kubernetes sets these variables in every container for services that are named "gateway" or "llm".
KUBERNETES_VARIABLES = re.compile(r"(GATEWAY|LLM)_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(TCP|UDP)\w*)")
MAX_SUGGESTIONS = 2
MIN_SIMILARITY = 0.7
MIN_PREFIX = 3


def suggest_similar(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known names most similar to `name`, or beginning with it; "" if there are
    none.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = (
        difflib.get_close_matches(name.lower(), by_lower, MAX_SUGGESTIONS, MIN_SIMILARITY)
        or [
            candidate
            for candidate in sorted(by_lower)
            if len(name) >= MIN_PREFIX and candidate.startswith(name.lower())
        ][:MAX_SUGGESTIONS]
    )
    if matches:
        return f"; did you mean {' or '.join(by_lower[match] for match in matches)}?"
    return ""


def unknown_variables(environment: Mapping[str, str], prefix: str, known: Collection[str]) -> list[str]:
    """Return a line for each variable that begins with `prefix` and is unknown.

    Names in `known`, those names with _FILE, and variables set by platforms are accepted.
    """
    full = {*known, *(f"{name}_FILE" for name in known)}
    return [
        f"{name}: there is no such setting{suggest_similar(name, full if name.endswith('_FILE') else known)}"
        for name in sorted(environment)
        if name.startswith(prefix) and name not in full and not KUBERNETES_VARIABLES.fullmatch(name)
    ]
