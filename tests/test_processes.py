"""Tests of the processes that share the tests."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
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


def test_results_of_several_processes_are_reported_like_those_of_one(tmp_path: Path) -> None:
    code, output = run_shared(tmp_path, "--processes=2")
    assert code == 1 and output.splitlines()[-1].startswith("2 failed, 2 passed, 1 skipped, 1 warning, 2 errors"), (
        output
    )
    assert "fixture ends" in output and "at the end" in output
    assert "assert 1 == 2" in output and "printed before" in output and "OSError: no fixture" in output
    assert "A process ended with 7 while it ran this test." in output
    assert "SKIPPED" in output and "not today" in output and "UserWarning: be warned" in output


def test_several_processes_stop_at_the_first_failure_when_requested(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text("")
    code, output = run_shared(tmp_path, "--processes=1", "-x")
    assert code == 1 and "1 failed" in output and "stopping after 1 failures" in output, output


LEAVING_TESTS = {
    "conftest.py": """
from gevent import monkey
monkey.patch_all()
import pytest
from support import forked, leftovers

def pytest_addoption(parser):
    parser.addoption("--processes", type=int)

def pytest_configure(config):
    leftovers.adopt()

def pytest_unconfigure(config):
    leftovers.end_all()

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    if session.config.option.processes == 1:
        return None
    forked.run(session, session.config.option.processes)
    return True
""",
    "test_leaving.py": """
import os, subprocess, sys
import pytest
from support import gateways

PROGRAM = "import os, subprocess, time; os.setsid(); print(subprocess.Popen(['sleep', '1000'], stdout=2).pid)"

def write(number):
    with open("left", "a") as left:
        left.write(f"{number} ")

@pytest.fixture
def server():
    child = subprocess.Popen(["sleep", "1000"])
    write(child.pid)
    raise OSError("it did not start")

def test_fails_at_its_start(server): ...

def test_leaves_a_daemon():
    # The program ends; the process that it started has another session and no parent any more.
    write(int(subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE).stdout))

def test_starts_a_gateway_that_is_too_slow(tmp_path, monkeypatch):
    monkeypatch.setattr(gateways, "START_S", 0.0)
    gateway = gateways.GatewayProcess(tmp_path / "data")
    gateway.cold = True
    try:
        gateway.start()
    finally:
        write(gateway._process.pid)
        assert gateway._process.poll() is not None

def test_ends_its_process():
    child = subprocess.Popen(["sleep", "1000"])
    write(child.pid)
    if os.environ.get("DIES"):
        os._exit(7)
""",
}


@pytest.mark.parametrize("processes", [1, 2])
def test_no_process_outlives_the_run_even_if_its_test_fails_at_its_start(tmp_path: Path, processes: int) -> None:
    for name, text in LEAVING_TESTS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "test_other.py").write_text("def test_passes(): ...")
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "DIES": "1" if processes > 1 else ""}
    options = ["-c", os.devnull, "-q", "--disable-plugin-autoload", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--processes={processes}", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    left = (tmp_path / "left").read_text().split()
    assert len(left) == 4 and "the gateway did not start" in done.stdout and "it did not start" in done.stdout
    assert [process for process in left if Path(f"/proc/{process}").exists()] == []
