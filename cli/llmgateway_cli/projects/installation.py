"""Installation of a project's dependencies: a virtual environment for Python, npm for TypeScript."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmgateway_cli.errors import CliError
from llmgateway_cli.output import Output
from llmgateway_cli.projects.templates import Language

ENVIRONMENT = ".venv"
LAST_LINES = 5  # of an installer's output that an error repeats


def install(folder: Path, language: Language, environment: Mapping[str, str], output: Output) -> None:
    """Install what the project needs. Raises CliError with the end of the installer's output."""
    for command in install_commands(folder, language, environment):
        with output.progress(f"Installing: {' '.join(command[-3:])}"):
            _run(command, folder, environment)


def install_commands(folder: Path, language: Language, environment: Mapping[str, str]) -> Sequence[Sequence[str]]:
    """Return the commands that install a project's dependencies. Raises CliError without npm."""
    if language == "python":
        make = [sys.executable, "-m", "venv", str(folder / ENVIRONMENT)]
        return make, [str(python_of(folder)), "-m", "pip", "install", "--quiet", "-r", "requirements.txt"]
    npm = shutil.which("npm", path=environment.get("PATH"))
    if npm is None:
        raise CliError("npm is not installed.", "Install Node.js 20 or later from https://nodejs.org.")
    return ([npm, "install", "--no-fund", "--no-audit"],)


def python_of(folder: Path) -> Path:
    """Return the interpreter of the project's virtual environment, whether or not it exists."""
    if os.name == "nt":
        return folder / ENVIRONMENT / "Scripts" / "python.exe"
    return folder / ENVIRONMENT / "bin" / "python"


def resolve_command(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the command with its program's path; `python` is that of the project's virtual environment if it has one.
    Raises CliError for a program that is not installed."""
    program, *rest = command
    own = python_of(folder)
    if program == "python" and own.exists():
        return [str(own), *rest]
    path = shutil.which(program, path=environment.get("PATH")) or shutil.which(
        f"{program}3", path=environment.get("PATH")
    )
    if path is None:
        raise CliError(f"The program `{program}` is not installed.", "Install it, then try again.")
    return [path, *rest]


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(command, cwd=folder, env=dict(environment), capture_output=True, text=True, check=False)
    except OSError as error:
        raise CliError(f"{command[0]} cannot be started: {error.strerror}.") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-LAST_LINES:]
        raise CliError(
            "\n".join([f"`{' '.join(command[-4:])}` failed:", *lines]), "Run it again in the project's folder."
        )
