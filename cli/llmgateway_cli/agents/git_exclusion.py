"""Keeps a settings file with a key out of commits: it is ignored, or git's own list of the clone ignores it."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from llmgateway_cli.errors import CliError

TIMEOUT_S = 20.0
SPECIAL = re.compile(r"([\\*?\[\]!# ])")


class GitError(Exception):
    """Git is not installed, or failed."""


def find_repository(folder: Path) -> Path | None:
    """Return the nearest folder from here upwards that has an entry `.git`, None without one."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


class GitExclusion:
    """The file of one working tree that must not be committed. `is_needed`: git would add the file at present."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = dict(environment)
        self._folder = next(place for place in path.parents if place.is_dir())
        self.repository = find_repository(self._folder)

    def is_needed(self) -> bool:
        """Return whether git would add the file. Raises CliError if git tracks it, or does not answer."""
        if self.repository is None:
            return False
        try:
            if self._run("ls-files", "--error-unmatch", "--", str(self._path)) == 0:
                raise CliError(
                    f"git tracks {self._path}, so the key would be part of the next commit.",
                    f"Run `git rm --cached {self._path}`, or leave out --project.",
                )
            return self._run("check-ignore", "--quiet", "--", str(self._path)) != 0
        except GitError as error:
            raise CliError(
                f"{self._path} is in the git repository {self.repository}, and git does not say whether it ignores "
                f"the file: {error}.",
                "Install git, or leave out --project.",
            ) from None

    def add(self) -> Path:
        """Add the file to the list of files that git ignores in this clone alone, and return the list. Raises CliError
        if git still does not ignore the file."""
        listed = Path(self._read("rev-parse", "--git-path", "info/exclude"))
        place = (self._folder / listed).resolve()
        top = Path(self._read("rev-parse", "--show-toplevel"))
        pattern = "/" + SPECIAL.sub(r"\\\1", self._path.resolve().relative_to(top.resolve()).as_posix())
        place.parent.mkdir(parents=True, exist_ok=True)
        former = place.read_text("utf-8") if place.exists() else ""
        if former and not former.endswith("\n"):
            former += "\n"
        place.write_text(f"{former}{pattern}\n", "utf-8")
        if self.is_needed():
            raise CliError(f"git does not ignore {self._path}.", "Add it to .gitignore, or leave out --project.")
        return place

    def _read(self, *arguments: str) -> str:
        try:
            return self._ask(*arguments).stdout.decode().strip()
        except GitError as error:
            raise CliError(f"git failed: {error}.", "Leave out --project.") from None

    def _run(self, *arguments: str) -> int:
        done = self._ask(*arguments)
        if done.returncode not in (0, 1):
            raise GitError(done.stderr.decode(errors="replace").strip().rstrip("."))
        return done.returncode

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = ["git", "-C", str(self._folder), *arguments]
        try:
            return subprocess.run(
                command, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GitError(type(error).__name__) from None
