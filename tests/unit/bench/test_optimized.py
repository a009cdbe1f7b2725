import json
import subprocess
import sys

import pytest

from bench import optimized
from bench.processes import BenchError


def answer(monkeypatch, prefix: str, version: list[int], has_jit: bool = False) -> list[list[str]]:
    """Let every interpreter describe itself like this; return the commands that were run."""
    commands: list[list[str]] = []

    def run(command, *_, **__):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, json.dumps([prefix, version, has_jit]), "")

    monkeypatch.setattr(optimized.subprocess, "run", run)
    monkeypatch.setattr(optimized, "run", run)
    return commands


@pytest.mark.parametrize(
    ("prefix", "version", "reason"),
    [
        (sys.base_prefix, [3, 11, 7], "is the interpreter that runs the benchmark"),
        ("/elsewhere", [3, 9, 2], "is Python 3.9.2, which is too old"),
    ],
)
def test_an_interpreter_that_cannot_be_compared_is_left_out_with_the_reason(monkeypatch, prefix, version, reason):
    answer(monkeypatch, prefix, version)
    assert reason in optimized.leave_out([optimized.NAME])[optimized.NAME]
    assert optimized.leave_out(["gateway"]) == {}


def test_an_interpreter_that_does_not_exist_is_left_out(monkeypatch):
    monkeypatch.setenv("BENCH_PYTHON", "/nowhere/python3")
    with pytest.raises(BenchError, match="/nowhere/python3 cannot be run"):
        optimized.find_interpreter()


def test_an_interpreter_says_that_its_compiler_is_enabled(monkeypatch):
    answer(monkeypatch, "/elsewhere", [3, 15, 2], has_jit=True)
    assert optimized.find_interpreter()[1] == "3.15.2 with its JIT compiler"


def test_the_packages_are_installed_once(monkeypatch, tmp_path):
    monkeypatch.setattr(optimized, "FOLDER", tmp_path)
    commands = answer(monkeypatch, "/elsewhere", [3, 12, 1])
    (tmp_path / optimized.NAME).mkdir()
    monkeypatch.setattr(optimized.shutil, "rmtree", lambda *_, **__: None)
    python = optimized.install()
    assert python == tmp_path / optimized.NAME / "bin" / "python"
    assert [command for command in commands if "--require-hashes" in command]
    commands.clear()
    assert optimized.install() == python
    assert not [command for command in commands if "--require-hashes" in command]
