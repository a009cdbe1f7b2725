"""The names by which coding agents report outcomes, from config/agent_outcomes.toml."""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gateway.configuration.settings import CONFIG

TABLE = CONFIG / "agent_outcomes.toml"
# The outcomes, in the order of their columns. All are counts, except active time in milliseconds.
OUTCOMES = (
    "sessions",
    "commits",
    "pull_requests",
    "lines_added",
    "lines_removed",
    "edits_accepted",
    "edits_rejected",
    "active_ms",
)
Signal = Literal["metrics", "logs"]
ReadAttribute = Callable[[str], str]


class OutcomeName(NamedTuple):
    """A metric or event of an agent, and the outcome that it counts."""

    agent: str
    scale: int
    session: tuple[str, ...]
    model: tuple[str, ...]
    attribute: str
    outcomes: Mapping[str, str]
    where: Mapping[str, frozenset[str]]

    def outcome_of(self, read: ReadAttribute) -> str:
        """Return the outcome that a point with these attributes counts, "" if it counts none."""
        if any(read(name) not in values for name, values in self.where.items()):
            return ""
        return self.outcomes.get(read(self.attribute) if self.attribute else "", "")


class OutcomeNames:
    """The names of all agents, by signal."""

    def __init__(self, agents: Sequence[Mapping[str, Any]]) -> None:
        self.agents: dict[str, str] = {agent["id"]: agent["name"] for agent in agents}
        self._names: dict[str, dict[str, OutcomeName]] = {
            "metrics": dict(_read(agents, "metric")),
            "logs": dict(_read(agents, "event")),
        }
        # Bytes that an export contains if it has any of these names, in JSON and in protobuf.
        self.prefixes: tuple[bytes, ...] = tuple(
            {name.partition(".")[0].encode() + b"." for names in self._names.values() for name in names}
        )

    def of(self, signal: str) -> Mapping[str, OutcomeName]:
        """Return the names that the exports of a signal may have; none for traces."""
        return self._names.get(signal, {})


def _read(agents: Sequence[Mapping[str, Any]], kind: str) -> Iterator[tuple[str, OutcomeName]]:
    for agent in agents:
        for entry in agent.get(kind, ()):
            outcomes = entry.get("outcomes") or {"": entry["outcome"]}
            unknown = set(outcomes.values()) - set(OUTCOMES)
            if unknown:
                raise ValueError(f"{TABLE.name}: {entry['name']} counts {', '.join(sorted(unknown))}")
            yield (
                entry["name"],
                OutcomeName(
                    agent["id"],
                    entry.get("scale", 1),
                    tuple(agent["session"]),
                    tuple(agent["model"]),
                    entry.get("attribute", ""),
                    outcomes,
                    {name: frozenset(values) for name, values in entry.get("where", {}).items()},
                ),
            )


NAMES = OutcomeNames(tomllib.loads(TABLE.read_text())["agent"])
