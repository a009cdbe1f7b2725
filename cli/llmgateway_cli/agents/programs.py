"""Programs of coding agents: where they are, their versions, and how one takes the place of this process."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

from llmgateway_cli.agents.definitions import Agent
from llmgateway_cli.errors import CliError

VERSION_TIMEOUT_S = 15.0
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
NOT_FOUND = 127
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP")


def find_program(agent: Agent, environment: Mapping[str, str]) -> str | None:
    """Return the path of the agent's program, None if it is not installed."""
    return shutil.which(agent.program, path=environment.get("PATH"))


def read_version(program: str, environment: Mapping[str, str]) -> str:
    """Return the version that a program reports, "" if it reports none in time."""
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(environment),
            timeout=VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = VERSION.search((done.stdout + done.stderr).decode(errors="replace"))
    return match[0] if match else ""


def is_older(version: str, minimum: str) -> bool:
    """Return whether a version is before another one; False if one is unknown."""
    ours = VERSION.match(version)
    theirs = VERSION.match(minimum)
    if ours is None or theirs is None:
        return False
    return tuple(map(int, ours.groups())) < tuple(map(int, theirs.groups()))


def installation_advice(agent: Agent) -> str:
    """Return the sentence that says how to install or update an agent."""
    if agent.is_custom:
        return "Install the program, or correct its command in agents.json."
    return f"Install it with `{agent.install}`. Instructions: {agent.documentation}"


def installed_program(agent: Agent, environment: Mapping[str, str]) -> str:
    """Return the path of the agent's program. Raises CliError if it is missing or too old."""
    program = find_program(agent, environment)
    if program is None:
        raise CliError(
            f"{agent.name} is not installed: there is no program `{agent.program}`.", installation_advice(agent)
        )
    if agent.minimum_version:
        version = read_version(program, environment)
        if is_older(version, agent.minimum_version):
            raise CliError(
                f"{agent.name} {version} is too old: version {agent.minimum_version} or later is required.",
                installation_advice(agent),
            )
    return program


def replace_process(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run a program in the place of this process, so that its exit code and every signal are its own. On Windows, which
    has no such call, it runs as a child. Raises CliError if it cannot be started."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if os.name == "nt":
            sys.exit(run_child(command, environment))
        # Python ignores SIGPIPE and a replaced process would inherit that.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execve(command[0], list(command), dict(environment))
    except OSError as error:
        raise CliError(
            f"{command[0]} cannot be started: {error.strerror}.", "Check that the file is a program for this machine."
        ) from None


def run_child(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program, pass signals on to it and return its exit code, 128 and its number after a signal."""
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # signals that arrived while the program was being started

    def forward(number: int, frame: FrameType | None) -> None:
        if not started:
            early.append(number)
        for child in started:
            child.send_signal(number)

    for name in FORWARDED:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, forward)
    with subprocess.Popen(list(command), env=dict(environment)) as child:
        started.append(child)
        for number in early:
            child.send_signal(number)
        code = child.wait()
    return 128 - code if code < 0 else code
