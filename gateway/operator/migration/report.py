"""The report of a migration: what was carried over, what is left to do, and what has no counterpart."""

from msgspec import Struct, field

TITLES = {
    "taken": "Carried over",
    "todo": "To do by hand",
    "replaced": "Works differently here",
    "absent": "No counterpart",
}


class MigrationReport(Struct):
    """The lines of each section, in the order of `TITLES`; repeated lines are shown once."""

    taken: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def sections(self) -> dict[str, list[str]]:
        """Return the lines by section."""
        return {name: list(dict.fromkeys(getattr(self, name))) for name in TITLES}

    def write(self) -> str:
        """Return the report as Markdown."""
        parts = []
        for name, lines in self.sections().items():
            if lines:
                parts.append("\n".join([f"## {TITLES[name]}", "", *(f"- {line}" for line in lines)]))
        return "\n\n".join(["# Migration from LiteLLM", *parts]) + "\n"
