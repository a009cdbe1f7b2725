"""A built wheel contains every file that the gateway reads."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.wheels import build_source, build_wheel

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
ABOUT = ".dist-info/"

# Prefixes in the wheel of files that are elsewhere in a checkout.
MOVED = {"gateway/launch/": "", "gateway/config/": "config/", "gateway/migrations/": "migrations/"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def inside(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ABOUT not in name}


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


def test_the_modules_that_gunicorn_starts_are_in_the_wheel(inside: set[str]) -> None:
    launched = {path for path in inside if path.startswith("gateway/launch/")}
    assert launched == {"gateway/launch/wsgi.py", "gateway/launch/gunicorn.conf.py"}


def test_the_example_of_a_configuration_file_is_inside_and_is_the_documents(inside: set[str]) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    example = (ROOT / "config" / "gateway.example.toml").read_text()
    assert f"```toml\n{example}```" in page and "gateway/config/gateway.example.toml" in inside


def test_nothing_else_is_inside(inside: set[str]) -> None:
    assert {path.split("/")[0] for path in inside} == {"gateway"}
    code = [path for path in inside if not path.startswith(("gateway/config/", "gateway/docs/"))]
    assert not [path for path in code if "test" in Path(path).name]


def test_an_installed_package_finds_its_files(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "from gateway.configuration import settings; settings.load({}); print(settings.ROOT)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(tmp_path / "gateway"), done.stderr


def test_the_wheel_is_the_same_whenever_it_is_built(wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_published_source_makes_the_same_wheel(inside: set[str], tmp_path: Path) -> None:
    with tarfile.open(build_source(tmp_path)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    found = zipfile.ZipFile(build_wheel(tmp_path, source)).namelist()
    assert {name for name in found if ABOUT not in name} == inside
