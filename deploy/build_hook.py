"""Writes the commit and its date into wheels and source archives, so that an installed gateway can tell its build."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gateway.build_stamp import read_commit

STAMP = "gateway/build.txt"
# The text of the file where git does not know the commit, as in the build of a container.
VARIABLE = "LLMGATEWAY_BUILD"


class BuildStamp(BuildHookInterface):
    """Adds gateway/build.txt, for `gateway.build_stamp`: that of the source if it has one, as archives do."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        packed = Path(self.root) / STAMP
        if packed.exists():
            text = packed.read_text(encoding="utf-8").strip()
        else:
            text = os.environ.get(VARIABLE) or read_commit(Path(self.root))
        if text:
            self._folder = tempfile.TemporaryDirectory()
            written = Path(self._folder.name) / "build.txt"
            written.write_text(f"{text}\n", encoding="utf-8")
            build_data["force_include"][str(written)] = STAMP

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()
