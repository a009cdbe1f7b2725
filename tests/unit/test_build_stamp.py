"""The build of the running program, in a checkout and in an installed package."""

import subprocess
from pathlib import Path

import pytest
from support.wheels import ROOT, build_wheel, install_wheel

from gateway import __version__, build_stamp

COMMIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "one"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=60)
    date = {"GIT_COMMITTER_DATE": "2026-11-29T10:00:00Z", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    subprocess.run(COMMIT, cwd=tmp_path, check=True, timeout=60, env=date)
    return tmp_path


def test_a_checkout_tells_commit_and_date(checkout: Path) -> None:
    commit, date = build_stamp.read_commit(checkout).split()
    whole = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, timeout=60)
    assert whole.stdout.startswith(commit) and date == "2026-11-29"


def test_a_folder_without_a_repository_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert build_stamp.read_commit(tmp_path) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_stamp.read_commit(ROOT) == ""


@pytest.mark.parametrize(
    ("stamp", "version"), [("3a1b2c4d 2026-11-29\n", f"{__version__}+20261129.3a1b2c4d"), ("", __version__)]
)
def test_the_full_version_names_the_build_as_semver_does(
    stamp: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build.txt").write_text(stamp)
    monkeypatch.setattr(build_stamp, "STAMP", tmp_path / "build.txt")
    monkeypatch.setattr(build_stamp, "read_stamp", build_stamp.read_stamp.__wrapped__)
    assert build_stamp.full_version() == version


@pytest.mark.slow
def test_an_installed_wheel_tells_its_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMGATEWAY_BUILD", "3a1b2c4d 2026-11-29")
    programs = install_wheel(build_wheel(tmp_path), tmp_path / "env")
    run = subprocess.run([programs / "llmgateway-manage", "--version"], capture_output=True, text=True, timeout=60)
    assert run.stdout == f"llmgateway {__version__}+20261129.3a1b2c4d\n"
