"""Where something stands in a TOML file, for who is to mend it. Nothing is looked for until it is asked for."""

import re
from dataclasses import dataclass

HEADER = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]")
KEY = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([\w.-]+))\s*=""")


class TomlLines:
    """The lines of a file's text. Tables are named as their headers are, "" being what stands before the first."""

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, table: str, key: str = "", nth: int = 0) -> int:
        """The line of a key, from 1; that of its table's header where it is not found (or none is asked for), 0 where
        neither is. `nth`: of how many tables of that name come before, as with [[…]]."""
        here = table == ""
        seen = -1
        header_line = 0
        for number, line in enumerate(self._text.splitlines(), 1):
            header = HEADER.match(line)
            if header and not KEY.match(line):
                same = header[1].replace('"', "").replace("'", "").replace(" ", "") == table
                seen += same
                here = same and seen == nth
                header_line = number if here else header_line
            elif here and key and (found := KEY.match(line)) and key in found.groups():
                return number
        return header_line


@dataclass(frozen=True, slots=True)
class TomlPlace:
    """An entry of the file `name`, as messages name it: `table` is the header that it stands under, `nth` as for
    `TomlLines.find`, `entry` what it is called ("" where the file says enough)."""

    name: str
    entry: str = ""
    lines: TomlLines | None = None
    table: str = ""
    nth: int = 0

    def at(self, key: str = "") -> str:
        """Its file, line and name; with `key` the line of that key."""
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
