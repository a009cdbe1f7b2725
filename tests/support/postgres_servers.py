"""PostgreSQL servers of drills, on TCP ports, which can be stopped, started, replicated and promoted."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
from support.gateways import free_port
from support.servers import find_postgres, find_user, make_reachable, run_as

DATABASE = "gateway"
# In the settings of an installation, besides those for replication.
OPTIONS = "-h 127.0.0.1 -p {port} -k {folder} -c wal_level=replica -c max_connections=100 -c shared_buffers=64MB"


class PostgresServer:
    """A server with its own data folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self._data = folder / f"data{self.port}"
        self._user = find_user()
        self._binaries = make_reachable(find_postgres(), self._user, folder)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}/{DATABASE}"

    @property
    def socket_url(self) -> str:
        return f"postgresql://postgres@/{DATABASE}?host={self.folder}&port={self.port}"

    def create(self) -> "PostgresServer":
        """Create an empty installation, and start it."""
        options = ("-A", "trust", "-E", "UTF8", "--locale=C", "-U", "postgres")
        run_as(self._user, self._binaries / "initdb", *options, "-D", self._data)
        self.start()
        with psycopg.connect(self.url.replace(DATABASE, "postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        return self

    def start(self) -> None:
        options = OPTIONS.format(port=self.port, folder=self.folder)
        self._control("-l", self.folder / f"log{self.port}", "-o", options, "start")

    def stop(self) -> None:
        """Disconnect every client, and stop."""
        if (self._data / "postmaster.pid").exists():
            self._control("-m", "fast", "stop")

    def crash(self) -> None:
        """Stop without a checkpoint, as after a power failure."""
        self._control("-m", "immediate", "stop")

    def promote(self) -> None:
        """Make a standby the primary."""
        self._control("promote")

    def start_standby(self, *, synchronous: bool = True) -> "PostgresServer":
        """Start a standby with streaming replication from this server; `synchronous`: commits wait for it."""
        standby = PostgresServer(self.folder)
        source = ("-h", "127.0.0.1", "-p", self.port, "-U", "postgres")
        run_as(
            self._user,
            self._binaries / "pg_basebackup",
            *source,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "-D",
            standby._data,
        )
        standby.start()
        if not synchronous:
            return standby
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        return standby

    def _control(self, *arguments: object) -> None:
        run_as(self._user, self._binaries / "pg_ctl", "-w", "-t", "300", "-D", self._data, *arguments)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder for servers. Its servers must be stopped at its end."""
    folder = Path(tempfile.mkdtemp(prefix="pgs", dir="/tmp"))
    user = find_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
