"""Line numbers of entries in a TOML file, for error messages. They are searched only when a message needs them."""

import re
from dataclasses import dataclass

HEADER = re.compile(r"\s*+\[\[?([^\[\]]++)\]")
KEY = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([\w.-]+))\s*=""")


class TomlLines:
    """The lines of a TOML text. Tables are named like their headers; "" is the part before the first header."""

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, table: str, key: str = "", nth: int = 0) -> int:
        """Return the line of a key, from 1.

        Return the line of the table's header if the key is not found or "", and 0 if neither is found. `nth` is the
        number of tables with the same name before it, as with [[…]].
        """
        here = table == ""
        seen = -1
        header_line = 0
        for number, line in enumerate(self._text.splitlines(), 1):
            header = HEADER.match(line)
            if header and not KEY.match(line):
                same = "".join(header[1].split()).replace('"', "").replace("'", "") == table
                seen += same
                here = same and seen == nth
                if here:
                    header_line = number
            elif here and key and (match := KEY.match(line)) and key in match.groups():
                return number
        return header_line


@dataclass(frozen=True, slots=True)
class TomlPlace:
    """A location in the file `name` for messages.

    `table` is its header, `nth` as in `TomlLines.find`, and `entry` its description ("" if the file name is enough).
    """

    name: str
    entry: str = ""
    lines: TomlLines | None = None
    table: str = ""
    nth: int = 0

    def at(self, key: str = "") -> str:
        """Return file, line and description; with `key` the line of that key."""
        if self.lines is not None:
            line = self.lines.find(self.table, key, self.nth)
        else:
            line = 0
        if line:
            where = f"{self.name}:{line}"
        else:
            where = self.name
        if self.entry:
            return f"{where}: {self.entry}"
        return where

    def __str__(self) -> str:
        return self.at()
