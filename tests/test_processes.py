"""Tests of the processes that share the tests."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from support.ordering import Queue, modules_of

TESTS = Path(__file__).resolve().parent


def test_processes_take_whole_modules_the_longest_first_and_stay_with_their_libraries() -> None:
    class Item:
        def __init__(self, path: str, slow: bool = False) -> None:
            self.path, self.slow, self.module = Path(path), slow, MODULES[path]

        def get_closest_marker(self, name: str) -> bool:
            return self.slow and name == "slow"

    MODULES = {name: ModuleType(name) for name in ("short", "long", "waits", "first", "second", "third")}
    MODULES["waits"].GatewayProcess = None  # type: ignore[attr-defined]
    for name, library in (("first", "mcp"), ("second", "mcp"), ("third", "soundfile")):
        setattr(MODULES[name], library, sys.modules[library])
    names = ["short", "long", "long", "waits", "first", "first", "second", "third", "third", "third"]
    items: list[Any] = [Item(name, slow=name == "long") for name in names]
    queue = Queue(modules_of(items))
    one, other = set[str](), set[str]()
    taken = [queue.take(False, one), queue.take(False, one), queue.take(True, other)]
    assert [names[tests[0]] for tests in taken] == ["long", "third", "waits"]
    assert [names[queue.take(False, other)[0]] for _ in range(3)] == ["first", "second", "short"]
    assert queue.take(False, one) == [] and (one, other) == ({"soundfile"}, {"mcp"})


SHARED_TESTS = {
    "conftest.py": """
from gevent import monkey
monkey.patch_all()
import pytest
from support import forked

def pytest_addoption(parser):
    parser.addoption("--processes", type=int)

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    forked.run(session, session.config.option.processes)
    return True
""",
    "test_one.py": """
import os, time, warnings, pytest
from support import forked

@pytest.fixture(scope="session")
def ended():
    yield
    time.sleep(0.01)
    print("fixture ends")
    assert False, "at the end"

def test_passes(ended):
    time.sleep(0.2)

def test_ends_its_process():
    os._exit(7)

def test_after_it(tmp_path, ended):
    assert tmp_path.parts[-2] == f"process{forked.number}"
    warnings.warn("be warned")
""",
    "test_two.py": """
import pytest

def test_fails():
    print("printed before")
    left, right = 1, 2
    assert left == right

@pytest.mark.skip(reason="not today")
def test_is_left_out(): ...

@pytest.fixture
def broken():
    raise OSError("no fixture")

def test_has_no_fixture(broken): ...
""",
}


def run_shared(folder: Path, *words: str) -> tuple[int, str]:
    for name, text in SHARED_TESTS.items():
        (folder / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    options = ["-c", os.devnull, "-q", "-ra", "--disable-plugin-autoload", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *words, str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_several_processes_find_is_reported_as_by_one(tmp_path: Path) -> None:
    code, output = run_shared(tmp_path, "--processes=2")
    assert code == 1 and output.splitlines()[-1].startswith("2 failed, 2 passed, 1 skipped, 1 warning, 2 errors"), (
        output
    )
    assert "fixture ends" in output and "at the end" in output
    assert "assert 1 == 2" in output and "printed before" in output and "OSError: no fixture" in output
    assert "A process ended with 7 while it ran this test." in output
    assert "SKIPPED" in output and "not today" in output and "UserWarning: be warned" in output


def test_several_processes_stop_at_the_first_failure_where_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text("")
    code, output = run_shared(tmp_path, "--processes=1", "-x")
    assert code == 1 and "1 failed" in output and "stopping after 1 failures" in output, output
