"""The settings of clients as a page shows them, and a person's home in which they are followed to the letter."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Protocol

import yaml

PREFIX = "client-"
NOTHING: Mapping[str, str] = {}
OWN_PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"
# Each stands for a program: it writes its arguments and its environment where the test finds them.
RECORDER = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done > "$RECORDED.arguments"
env -0 > "$RECORDED.environment"
"""


@dataclass
class Step:
    """One text to copy, its kind, and the place where it belongs."""

    kind: str
    place: str
    text: str = ""


class AnyStep(Protocol):
    """A step as a page shows it, or as the gateway makes it."""

    @property
    def kind(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def text(self) -> str: ...


class _Reader(HTMLParser):
    """Collects the steps of each client: `<details id="client-…">` with `<pre data-kind data-place>`."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[str, list[Step]] = {}
        self._client = ""
        self._step: Step | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "details":
            self._client = given.get("id", "").removeprefix(PREFIX)
            self.clients[self._client] = []
        if tag == "pre" and "data-kind" in given:
            self._step = Step(given["data-kind"], given.get("data-place", ""))
            self.clients[self._client].append(self._step)

    def handle_endtag(self, tag: str) -> None:
        if tag == "pre":
            self._step = None

    def handle_data(self, data: str) -> None:
        if self._step is not None:
            self._step.text += data


def read_clients(html: str) -> dict[str, list[Step]]:
    """Return the steps of each client on a page, by the client's id."""
    reader = _Reader()
    reader.feed(html)
    return reader.clients


@dataclass
class Followed:
    """What came of following the steps: the files and values that were entered, and how the client's program was
    started."""

    files: dict[str, object] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    output: str = ""


def follow(
    steps: Sequence[AnyStep], home: Path, *programs: str, places: str = OWN_PATH, known: Mapping[str, str] = NOTHING
) -> Followed:
    """Do what the steps say in a new home: write each file, run each command in a shell. `programs` are recorded
    instead of run; others are those of `places`, by default those of this machine. `known` are variables that the
    person's shell has already."""
    folder = home / "project"
    folder.mkdir(parents=True)
    stubs = home / "programs"
    stubs.mkdir()
    for name in programs:
        (stubs / name).write_text(RECORDER)
        (stubs / name).chmod(0o755)
    followed = Followed()
    for step in steps:
        if step.kind == "shell":
            _run(step.text, home, folder, followed, {**known, "PATH": f"{stubs}:{places}", "HOME": str(home)})
        elif step.kind == "value":
            followed.values[step.place] = step.text
        else:
            path = home / step.place[2:] if step.place.startswith("~/") else folder / step.place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text + "\n")
            followed.files[step.place] = parse(step.kind, path)
    return followed


def _run(text: str, home: Path, folder: Path, followed: Followed, environment: Mapping[str, str]) -> None:
    recorded = home / "recorded"
    script = f"set -e\n{text}\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**environment, "RECORDED": str(recorded)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    followed.output += done.stdout
    started = recorded.with_suffix(".environment")
    if started.exists():
        lines = started.read_text().split("\0")[:-1]
        variables = dict(line.split("=", 1) for line in lines)
        own = {*environment, "RECORDED", "PWD", "SHLVL", "_", "OLDPWD"}
        followed.variables = {name: value for name, value in variables.items() if name not in own}
        followed.arguments = recorded.with_suffix(".arguments").read_text().split("\0")[:-1]


def parse(kind: str, path: Path) -> object:
    """Return the content of a file, read as its kind says. Raises an error if it is not of that kind."""
    text = path.read_text()
    if kind == "toml":
        return tomllib.loads(text)
    if kind == "json":
        return json.loads(text)
    if kind == "yaml":
        return yaml.safe_load(text)
    if kind == "python":
        compile(text, str(path), "exec")
        return text
    assert kind == "typescript", kind
    node = shutil.which("node")
    if node:  # the texts use no types, so they are modules of JavaScript too
        module = path.with_suffix(".mjs")
        module.write_text(text)
        subprocess.run([node, "--check", str(module)], check=True, capture_output=True)
    return text
