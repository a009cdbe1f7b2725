"""The names by which coding agents report outcomes, from config/agent_outcomes.toml."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
Conditions = Mapping[str, frozenset[str]]


class OutcomeName(NamedTuple):
    """A metric or event of an agent, and the outcome that it counts."""

    agent: str
    scale: int
    session: tuple[str, ...]
    model: tuple[str, ...]
    attribute: str
    outcomes: Mapping[str, str]
    where: Conditions
    needs: Mapping[str, Conditions]

    def outcome_of(self, read: ReadAttribute) -> str:
        """Return the outcome that a point with these attributes counts, "" if it counts none."""
        if not _holds(self.where, read):
            return ""
        outcome = self.outcomes.get(read(self.attribute) if self.attribute else "", "")
        return outcome if _holds(self.needs.get(outcome, {}), read) else ""


def _holds(conditions: Conditions, read: ReadAttribute) -> bool:
    return all(read(name) in values for name, values in conditions.items())


class OutcomeNames:
    """The names of all agents, by signal."""

    def __init__(self, agents: Sequence[Mapping[str, Any]]) -> None:
        self.agents: dict[str, str] = {agent["id"]: agent["name"] for agent in agents}
        self._names: dict[str, dict[str, OutcomeName]] = {
            "metrics": dict(_read(agents, "metric")),
            "logs": dict(_read(agents, "event")),
        }
        # The names as they are in a record, in which they are looked for before it is decoded: Codex sends a record for
        # each event of a stream, with some twenty attributes, and 512 in one export.
        self.encoded: dict[str, tuple[bytes, ...]] = {
            signal: tuple(name.encode() for name in names) for signal, names in self._names.items()
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
                    _conditions(entry.get("where", {})),
                    {outcome: _conditions(one) for outcome, one in entry.get("needs", {}).items()},
                ),
            )


def _conditions(given: Mapping[str, Iterable[str]]) -> Conditions:
    return {name: frozenset(values) for name, values in given.items()}


NAMES = OutcomeNames(tomllib.loads(TABLE.read_text())["agent"])
