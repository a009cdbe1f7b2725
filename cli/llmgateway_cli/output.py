"""Everything that the program prints and reads at the terminal: data on stdout, everything else on stderr."""

import getpass
import importlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO, TypeVar

import click

from llmgateway_cli.errors import CliError
from llmgateway_cli.progress import LiveLine, Progress
from llmgateway_cli.settings import Settings
from llmgateway_cli.tables import Column, clean, field_lines, layout, plain_lines, records

T = TypeVar("T")
REDACTED = "[hidden]"
MIN_SECRET_LENGTH = 8  # shorter ones would remove parts of ordinary words
LABEL_COLOR = "cyan"
HELP_COLUMNS = 80
STYLES = {"error": "red", "warning": "yellow", "success": "green", "info": "cyan"}


class Output:
    """The program's terminal. `as_json` is set by `--json`: then `document` is the only data that may be printed."""

    def __init__(self, environment: Mapping[str, str], settings: Settings) -> None:
        self.as_json = False
        self._environment = environment
        self._settings = settings
        self._secrets: list[str] = []

    # Data

    def data(self, text: str) -> None:
        """Print data for people or scripts to stdout."""
        print(text, file=sys.stdout)

    def document(self, value: Any) -> None:
        """Print one JSON document."""
        self.data(self.redact(json.dumps(value, indent=2, ensure_ascii=False)))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], empty: str = "") -> None:
        """Print a table that fits the terminal: in colour on a terminal, as plain text otherwise. `empty` is the notice
        for a table without rows."""
        if not rows and empty:
            self.info(empty)
            return
        hidden = [[self.redact(cell) for cell in row] for row in rows]
        arranged = layout(columns, hidden, self.width)
        if not arranged.widths:
            for number, pairs in enumerate(records(arranged)):
                if number:
                    self.data("")
                self.fields(pairs)
        elif self.is_colored(sys.stdout):
            importlib.import_module("llmgateway_cli.rich_tables").print_table(arranged, self.width)
        else:
            for line in plain_lines(arranged):
                self.data(line)
        if arranged.left_out:
            self.info(f"Left out for the width: {', '.join(arranged.left_out)}. --json shows everything.")

    def listing(
        self, document: Sequence[Any], columns: Sequence[Column], rows: Sequence[Sequence[str]], empty: str = ""
    ) -> None:
        """Print a list: `document` with --json, otherwise the table of its `rows`."""
        if self.as_json:
            self.document(document)
        else:
            self.table(columns, rows, empty)

    def fields(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one pair in a line."""
        colored = self.is_colored(sys.stdout)
        for label, text in field_lines(pairs, self.width):
            if colored:
                label = click.style(label, fg=LABEL_COLOR)
            self.data(label + self.redact(text))

    # Notices

    def info(self, text: str) -> None:
        """Print a notice to stderr."""
        self._notice("info", text)

    def success(self, text: str) -> None:
        """Report to stderr that something was done."""
        self._notice("success", text)

    def warning(self, text: str) -> None:
        self._notice("warning", text)

    def error(self, error: CliError) -> None:
        """Report why a command failed, what to do next, and the id of the request."""
        self._notice("error", error.message)
        if error.remedy:
            self._print_notice(error.remedy)
        if error.request_id:
            self._print_notice(f"Request id: {clean(error.request_id)}")

    def usage(self, text: str) -> None:
        """Print the help of a group that was called without a command."""
        self._print_notice(text)

    def usage_error(self, error: click.UsageError) -> None:
        """Report that the command line cannot be understood."""
        self._notice("error", error.format_message())
        if error.ctx is not None:
            self._print_notice(error.ctx.get_usage())
            self._print_notice(f"See `{error.ctx.command_path} --help`.")

    def interrupted(self) -> None:
        """Report Ctrl-C, below the line on which it was typed."""
        with suppress(OSError):
            print("\nInterrupted.", file=sys.stderr)

    def progress(self, text: str) -> Progress:
        """Return a context manager that shows `text` and the seconds once its block takes more than one."""
        return Progress(text, sys.stderr)

    def live(self) -> LiveLine:
        """Return a context manager with a line that shows how far something is; silent with --json."""
        return LiveLine(sys.stderr, self.info, self.as_json)

    def _notice(self, level: str, text: str) -> None:
        label = f"{level}: "
        if self.is_colored(sys.stderr):
            label = click.style(label, fg=STYLES[level], bold=level == "error")
        self._print_notice(text, label)

    def _print_notice(self, text: str, label: str = "") -> None:
        with suppress(BrokenPipeError):
            print(label + self.redact(clean(text, keep="\n")), file=sys.stderr)

    def hide(self, secret: str) -> None:
        """Keep a secret out of every later notice."""
        if secret:
            self._secrets.append(secret)

    def redact(self, text: str) -> str:
        """Return a text without the secrets that this program knows."""
        for secret in (*self._secrets, *self._settings.secrets):
            if len(secret) >= MIN_SECRET_LENGTH:
                text = text.replace(secret, REDACTED)
        return text

    # Questions

    def confirm(self, question: str, yes: bool) -> bool:
        """Return whether the user agrees; `yes` (the flag -y) answers for them, and the default is no. Raises CliError
        without a terminal."""
        if yes:
            return True
        if not self.is_interactive():
            raise CliError(f"{question} There is no terminal to confirm this.", "Give -y to do it without a question.")
        agreed = self._read(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        if not agreed:
            self.info("Cancelled. Nothing was changed.")
        return agreed

    def ask(self, question: str, option: str) -> str:
        """Return a line that the user types. Raises CliError without a terminal; `option` would give the value."""
        if not self.is_interactive():
            raise CliError(
                f"{question.rstrip(':')} is missing, and there is no terminal to type it.", f"Give {option}."
            )
        return self._read(f"{question} ").strip()

    def choose(self, question: str, choices: Sequence[tuple[str, T]], option: str) -> T:
        """Return the value of a numbered choice. Raises CliError without a terminal; `option` would give the value."""
        if not self.is_interactive():
            raise CliError(f"{question} There is no terminal to choose.", f"Give {option}.")
        for number, (label, _) in enumerate(choices, 1):
            self._print_notice(f"  {number}. {label}")
        while True:
            typed = self._read(f"{question} [1-{len(choices)}] ").strip()
            if typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(choices):
                return choices[int(typed) - 1][1]
            self.warning(f"Type a number from 1 to {len(choices)}.")

    def secret(self, question: str, variable: str = "", ask_first: bool = False) -> str:
        """Return a secret from an environment variable, a prompt without echo, or a line of standard input.
        `ask_first` prefers the prompt."""
        value = self._environment.get(variable, "")
        if self.is_interactive() and (ask_first or not value):
            try:
                value = getpass.getpass(f"{question} ", stream=sys.stderr)
            except EOFError:
                raise click.Abort from None
        elif not value:
            value = sys.stdin.readline()
        self.hide(value.strip())
        return value.strip("\r\n")

    def _read(self, prompt: str) -> str:
        sys.stderr.write(clean(prompt))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise click.Abort
        return line

    # The terminal

    def is_interactive(self) -> bool:
        """Return whether a person can answer questions."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def is_colored(self, stream: TextIO) -> bool:
        """Return whether to print colours: only to a terminal, and not under NO_COLOR."""
        plain = self._environment.get("NO_COLOR") or self._environment.get("TERM") == "dumb"
        return stream.isatty() and not plain

    @property
    def width(self) -> int | None:
        """The columns of the terminal that data goes to; None if it goes to a pipe or a file."""
        if not sys.stdout.isatty():
            return None
        return shutil.get_terminal_size().columns

    @property
    def help_width(self) -> int:
        """The columns of help texts; click itself uses no fewer than 50."""
        return min(shutil.get_terminal_size().columns, HELP_COLUMNS) - 2

    def flush(self) -> None:
        sys.stdout.flush()

    def give_up(self) -> None:
        """Discard further data: the program that reads it has ended."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
