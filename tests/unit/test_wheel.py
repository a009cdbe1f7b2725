"""A built wheel holds every file that the gateway reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
# What setuptools would put into a wheel, without building one.
LIST = """
import json, os
from distutils.core import run_setup
command = run_setup("setup.py", stop_after="init").get_command_obj("build_py")
command.distribution.script_name = "-c"  # as an isolated build has it
command.build_lib = "wheel"
command.ensure_finalized()
print(json.dumps([os.path.relpath(path, "wheel") for path in command.get_outputs(include_bytecode=False)]))
"""

# How paths in the wheel begin that are elsewhere in a checkout.
MOVED = {"gateway/launch/": "", "gateway/config/": "config/", "gateway/migrations/": "migrations/"}


@pytest.fixture(scope="module")
def inside() -> set[str]:
    pytest.importorskip("setuptools")
    command = [sys.executable, "-W", "ignore", "-c", "import setuptools" + LIST]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def files(folder: str, pattern: str) -> set[Path]:
    return {path for path in (ROOT / folder).rglob(pattern) if "__pycache__" not in path.parts and path.is_file()}


def test_every_file_of_the_package_is_inside(inside: set[str]) -> None:
    found = files("gateway", "*")
    assert len(found) > 200
    assert {str(path.relative_to(ROOT)) for path in found} <= inside


@pytest.mark.parametrize("folder", ["config", "migrations"])
def test_settings_catalogue_and_migrations_are_inside_of_the_package(inside: set[str], folder: str) -> None:
    found = files(folder, "*")
    assert len(found) > 5
    assert {f"gateway/{path.relative_to(ROOT)}" for path in found} <= inside


def test_what_gunicorn_starts_from_is_inside(inside: set[str]) -> None:
    launched = {path for path in inside if path.startswith("gateway/launch/")}
    assert launched == {"gateway/launch/wsgi.py", "gateway/launch/gunicorn.conf.py"}


def test_nothing_else_is_inside(inside: set[str]) -> None:
    assert {path.split("/")[0] for path in inside} == {"gateway"}
    assert not [path for path in inside if "test" in Path(path).name and not path.startswith("gateway/config/")]


def test_an_installed_package_finds_its_files(inside: set[str], tmp_path: Path) -> None:
    for path in inside:
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        source = next(
            (path.replace(prefix, there, 1) for prefix, there in MOVED.items() if path.startswith(prefix)), path
        )
        place.write_bytes((ROOT / source).read_bytes())
    code = "from gateway import settings; settings.load({}); print(settings.ROOT)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(tmp_path / "gateway"), done.stderr
