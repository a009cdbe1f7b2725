"""The turns of an agent as a provider got them: each one begins with the former one, byte for byte, so that the prompt
cache of the provider can read it."""

import itertools
from typing import Any

from sessions.prefixes import difference, prefix_of


def rewritten(calls: list[Any]) -> list[str]:
    """Return the first differences between the requests of one conversation that a model got. Agents also send
    requests without tools: for titles and summaries, and to find out whether a model answers."""
    turns = [
        call.body for call in calls if call.status == 200 and (call.body.get("tools") or call.body.get("toolConfig"))
    ]
    pairs = [pair for pair in itertools.pairwise(turns) if len(prefix_of(pair[1])[1]) > len(prefix_of(pair[0])[1])]
    return [changed for before, after in pairs if (changed := difference(before, after))]
