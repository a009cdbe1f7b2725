"""Reads a container file and runs its steps without a builder, in a folder that represents the root."""

import json
import re
import shlex
import shutil
import string
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "Dockerfile"
STEP_S = 600


@dataclass
class Stage:
    """A FROM with the following instructions, as (keyword, rest)."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, keyword: str) -> str:
        """Return the rest of the last instruction with this keyword."""
        return [rest for known, rest in self.steps if known == keyword][-1]

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for keyword, rest in self.steps:
            if keyword == "ENV":
                found |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        return found

    @property
    def command(self) -> list[str]:
        """Return the default command."""
        return [*json.loads(self.last("ENTRYPOINT")), *json.loads(self.last("CMD"))]

    @property
    def health_command(self) -> list[str]:
        return json.loads(self.last("HEALTHCHECK").partition(" CMD ")[2])


def read_stages() -> list[Stage]:
    """Return the stages of deploy/Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.M).replace("\\\n", " ")
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        keyword, rest = line.split(None, 1)
        if keyword == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(string.Template(base).substitute(arguments), name))
        elif stages:
            stages[-1].steps.append((keyword, " ".join(rest.split())))
        else:
            arguments |= dict([rest.split("=", 1)])
    return stages


class Image:
    """The result of a stage's steps in `folder`. Absolute paths refer to places in the folder."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.folder = folder
        self.stage = stage
        self._inside = folder

    def place(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def translate(self, text: str) -> str:
        """Replace /opt, /src and /data in a command or variable by the places that represent them."""
        return re.sub(r"(?<![\w./])/(opt|src|data)\b", lambda found: f"{self.folder}/{found[1]}", text)

    def build(self) -> None:
        """Run every step, in order."""
        ignored = shutil.ignore_patterns(*(ROOT / ".dockerignore").read_text().replace("**/", "").split())
        for keyword, rest in self.stage.steps:
            if keyword == "WORKDIR":
                self._inside = self.place(rest)
                self._inside.mkdir(parents=True)
            elif keyword == "COPY":
                *sources, target = rest.split()
                for source in sources:
                    self._copy(ROOT / source, self._inside / target, ignored)
            elif keyword == "RUN":
                done = subprocess.run(
                    ["sh", "-ec", self.translate(rest)],
                    cwd=self._inside,
                    capture_output=True,
                    text=True,
                    timeout=STEP_S,
                )
                assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            else:
                raise AssertionError(f"no handler for {keyword}")

    def _copy(self, source: Path, target: Path, ignored: object) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)  # type: ignore[arg-type]
        elif target.is_dir():
            shutil.copy(source, target / source.name)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
