"""Programs that stand for coding agents: they write down how they were started."""

import json
from pathlib import Path

SCRIPT = """\
#!/bin/sh
if [ "$1" = "--version" ]; then echo "{name} {version} (fake)"; exit 0; fi
: > "{record}.arguments"
for argument in "$@"; do printf '%s\\0' "$argument" >> "{record}.arguments"; done
tr '\\0' '\\n' < /proc/$$/cmdline > "{record}.command"
env -0 > "{record}.environment"
{work}
"""
# The part of the machine's PATH that stays: agents that are really installed do not count.
SYSTEM = "/usr/bin:/bin"


class FakeAgents:
    """A folder of programs; `path` is a PATH with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self.path = f"{folder}:{SYSTEM}"

    def install(self, name: str, version: str = "99.0.0", work: str = "exit 0") -> None:
        """Add a program that reports a version; `work` is what it does when it is started."""
        program = self._folder / name
        record = self._folder / f".{name}"
        program.write_text(SCRIPT.format(name=name, version=version, record=record, work=work))
        program.chmod(0o755)

    def was_started(self, name: str) -> bool:
        return (self._folder / f".{name}.arguments").exists()

    def arguments(self, name: str) -> list[str]:
        """The arguments that the program was started with."""
        return (self._folder / f".{name}.arguments").read_text().split("\0")[:-1]

    def command_line(self, name: str) -> str:
        """The command line as the process list shows it."""
        return (self._folder / f".{name}.command").read_text()

    def environment(self, name: str) -> dict[str, str]:
        lines = (self._folder / f".{name}.environment").read_text().split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)


def write_custom_agents(folder: Path, *entries: object) -> None:
    """Write the user's own agents beside the configuration."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "agents.json").write_text(json.dumps(list(entries)))
