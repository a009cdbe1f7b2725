"""PgBouncer in transaction mode before a PostgreSQL server of a drill."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from support.fleet import wait_until
from support.gateways import ROOT, free_port
from support.postgres_servers import DATABASE, PostgresServer
from support.servers import find_user

# `make drills` unpacks Debian's package and its libraries here.
UNPACKED = ROOT / ".venv" / "pgbouncer"
SETTINGS = """\
[databases]
{database} = host={folder} port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
ignore_startup_parameters = extra_float_digits
"""


def find_pgbouncer() -> str:
    binary = shutil.which("pgbouncer", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", f"{UNPACKED}/usr/sbin"]))
    if binary is None:
        pytest.skip("PgBouncer: neither on PATH nor unpacked by make drills")
    return binary


class PgBouncer:
    """A pooler in `folder`, with `url` for the gateway."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self._binary = find_pgbouncer()
        self._port = free_port()
        self._settings = folder / "pgbouncer.ini"
        text = SETTINGS.format(database=DATABASE, folder=server.folder, server=server.port, port=self._port)
        self._settings.write_text(text)
        self._log = folder / "pgbouncer.log"
        self._process = self._start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{DATABASE}"

    def restart(self) -> None:
        """End every connection as a crash does, and accept new ones."""
        self.stop()
        self._process = self._start()

    def stop(self) -> None:
        self._process.kill()  # SIGQUIT is ignored in what a shell runs in the background
        self._process.wait(60)

    def _start(self) -> "subprocess.Popen[bytes]":
        user = find_user()
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        libraries = {"LD_LIBRARY_PATH": ":".join(map(str, UNPACKED.glob("usr/lib/*")))}
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [self._binary, self._settings], env=os.environ | libraries, stdout=log, stderr=log, **account
            )
        wait_until(self._is_open)
        return process

    def _is_open(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self._port)) == 0
