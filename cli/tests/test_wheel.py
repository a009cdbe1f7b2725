"""The wheel in an environment that has its own requirements and nothing of the server."""

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from support.wheels import build_wheel

from gateway.configuration.settings import ROOT

pytestmark = pytest.mark.slow
PASSWORD = "correct horse battery"
NAME = re.compile(r"[A-Za-z0-9._-]+")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"), ROOT / "cli")


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel and its requirements."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-config", "--no-cache"]
    install = [*uv, "--python", str(folder / "bin" / "python"), "--no-deps", "--no-index", "--offline", str(wheel)]
    subprocess.run(install, check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in requirements_of("llmgateway-cli", packages):
        link_distribution(name, packages)
    return folder / "bin"


def requirements_of(name: str, packages: Path) -> set[str]:
    """Return the names of all distributions that a distribution needs, directly or indirectly."""
    own = next(iter(importlib.metadata.distributions(name=name, path=[str(packages)])))
    waiting = list(own.requires or ())
    known: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        needed = NAME.match(requirement)[0]
        if "extra ==" in requirement or "sys_platform ==" in requirement or needed in known:
            continue
        known.add(needed)
        waiting += importlib.metadata.requires(needed) or ()
    return known


def link_distribution(name: str, packages: Path) -> None:
    """Link a distribution of the tests' environment into another one."""
    distribution = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        source = Path(str(distribution.locate_file(top)))
        if not (packages / top).exists():
            os.symlink(source, packages / top)


def test_the_wheel_contains_the_client_alone(wheel: Path) -> None:
    folders = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert folders == {"llmgateway_cli", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}


def test_the_wheel_contains_the_licence_of_the_repository(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (licence,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_an_environment_without_the_server_signs_in_creates_a_key_and_reads_usage(
    programs: Path, signed_out: Client, account: Account
) -> None:
    for package in ("gateway", "flask", "gevent", "peewee", "msgspec"):
        command = [programs / "python", "-c", f"import click, requests, rich; import {package}"]
        completed = subprocess.run(command, capture_output=True, timeout=60, cwd=signed_out.home)
        assert f"No module named '{package}'".encode() in completed.stderr

    def run(*arguments: str, code: int = 0) -> str:
        environment = signed_out.environment | {"LLMGATEWAY_PASSWORD": PASSWORD}
        done = subprocess.run(
            [programs / "llmgateway", *arguments], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    run("auth", "login", "--email", "owner@localhost")
    assert "llmgtwy_" in run("keys", "create", "-d", "From the wheel")
    assert "From the wheel" in run("keys", "list", "--all")
    assert "Requests:" in run("usage")
    run("init", str(signed_out.home / "project"), "--no-install")
    assert (signed_out.home / "project" / "main.py").exists()
    run("sing", code=2)
