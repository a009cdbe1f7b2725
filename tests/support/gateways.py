"""Complete gateways for tests, inside this process or under gunicorn."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from fakes.server import PromptHandler
from gevent.pywsgi import WSGIServer
from support import forked, prepared, warm
from support.warm import WarmProcess

from gateway.accounts import keys
from gateway.accounts.members import add_member
from gateway.accounts.organizations import create_organization
from gateway.accounts.projects import create_project, list_projects
from gateway.admin.bootstrap import Administration
from gateway.application.app import Application, create_app
from gateway.clock import Clock
from gateway.configuration.settings import DatabaseSettings, Settings
from gateway.runtime.threads import Threads
from gateway.server.ports import problem_of
from gateway.store.database import open_database
from gateway.store.migrations import migrate
from gateway.worker.wiring import build

ROOT = Path(__file__).resolve().parents[2]
START_S = 240.0  # a cold start imports all modules, and the machine may be busy
PORT_FREE_S = 10.0
# The first port of each test process; the offset in its range is random.
PORTS, FIRST_PORT = 2_000, 10_000
_ports = count(os.getpid())
MANAGE = (sys.executable, "-m", "gateway.operator.command")


class UpgradingHandler(PromptHandler):
    """Passes its connection to WebSocket handlers, like the gateway's server."""

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        if "HTTP_UPGRADE" in environ:
            environ["gunicorn.socket"] = self.socket  # as all gunicorn workers set it
        return environ

    def run_application(self) -> None:
        try:
            super().run_application()
        except StopIteration:
            self.close_connection = self.provided_date = True
            self.result = []


class LocalGateway:
    """A gateway in this process on a free port. `key` is the first API key, of a project with credits."""

    def __init__(self, settings: Settings, key: str) -> None:
        self.key = key
        services = build(settings)
        administration = Administration(
            services.store.database, services.store.control, services.store.secrets, services.background.passwords
        )
        administration.bootstrap(settings, services.billing.ledger.begin)
        self.app: Application = create_app(settings, services)
        self.services = services
        self._server = WSGIServer(("127.0.0.1", 0), self.app, log=None, error_log=None, handler_class=UpgradingHandler)
        self._server.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        project = list_projects(services.store.database)[0]
        self.organization_id, self.project_id = project.organization_id, project.id

    @property
    def url(self) -> str:
        """The base URL for SDKs."""
        return f"{self.address}/v1"

    def add_organization(self, name: str, credits_nusd: int = 100_000_000_000) -> str:
        """Add an organization with credits and return an API key of it."""
        return self.settle(name, credits_nusd)[2]

    def settle(self, name: str, credits_nusd: int) -> tuple[str, str, str]:
        """Add an organization with credits and return its id, its project's id and an API key of its owner."""
        services, by = self.services, {"actor": "test"}
        stores = services.store.database, services.store.control
        organization = create_organization(*stores, name, **by)
        project = create_project(*stores, organization.id, name, **by)
        member = add_member(*stores, organization.id, f"{name}@localhost", "owner", **by)
        services.billing.ledger.grant(organization.id, credits_nusd, f"test:{organization.id}")
        draft = keys.Draft(project.id, member.id, name)
        key = keys.create(*stores, services.store.secrets.hash_keys, draft, **by)
        return organization.id, project.id, key.token

    def close(self) -> None:
        self._server.stop(timeout=1)
        self.app.close()


@contextmanager
def local_gateway(make_settings: Callable[..., Settings], **environment: str) -> Iterator[LocalGateway]:
    """Return a migrated gateway with those variables; its database is SQLite without a DATABASE_URL."""
    key = "llmgtwy_" + secrets.token_urlsafe(30)
    settings = make_settings(GATEWAY_BOOTSTRAP_API_KEY=key, **environment)
    migrate_store(settings)
    gateway = LocalGateway(settings, key)
    try:
        yield gateway
    finally:
        gateway.close()


def migrate_store(settings: Settings) -> None:
    """Apply every migration. For SQLite, copy a file that was migrated once in this process."""
    config = settings.database
    path = Path(config.url.removeprefix("sqlite:///") or Path(config.data_dir) / "gateway.db")
    if config.scheme != "sqlite" or path.exists():
        _migrate(config)
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _copy_migrated(path, Path(config.data_dir))


def _copy_migrated(path: Path, data: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(_migrated_file())
    prepared.write_secrets(data)


@cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gateway.db"
        _migrate(DatabaseSettings(f"sqlite:///{path}", "", 2, 10.0))
        return path.read_bytes()


def _migrate(settings: DatabaseSettings) -> None:
    threads = Threads()
    database = open_database(settings, Clock(), threads)
    migrate(database)
    prepared.settle(database)
    database.close()
    threads.close()


class GatewayProcess:
    """A gateway under gunicorn with a separate data directory. `environment` is added to a minimal environment.

    Tests of the start itself set `cold`: then every process imports all modules and there is no database yet. Other
    tests start with an empty database at the newest migration.
    """

    cold = False
    # Served by gunicorn's standard gevent worker: `make stock-server` runs the published clients against it.
    stock = bool(os.environ.get("STOCK_GUNICORN"))

    def __init__(self, data: Path, workers: int = 1, port: int = 0, **environment: str) -> None:
        self.port = port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.address}/v1"
        self.data = data
        self.root = ROOT  # the root of the code that it runs
        self.command = list(MANAGE)
        self.key = environment.get("GATEWAY_BOOTSTRAP_API_KEY") or "llmgtwy_" + secrets.token_urlsafe(30)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(data),
            **prepared.ENVIRONMENT,
            "GATEWAY_DATA_DIR": str(data),
            "GATEWAY_BOOTSTRAP_API_KEY": self.key,
            "WEB_CONCURRENCY": str(workers),
            "PORT": str(self.port),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._log = data.parent / f"{data.name}.log"

    def start(self) -> "GatewayProcess":
        """Start `manage serve` and wait until it accepts requests."""
        self.data.mkdir(parents=True, exist_ok=True)
        store = self.data / "gateway.db"
        if self._starts_warm() and "DATABASE_URL" not in self.environment and not store.exists():
            _copy_migrated(store, self.data)
        with self._log.open("ab") as log:
            if self.stock:
                self._process = self._start_stock(log)
            elif self._starts_warm():
                self._process = WarmProcess(["gateway.operator.command", "serve"], self.environment, log, log)
            else:
                command = [*self.command, "serve"]
                self._process = self._popen(command, log)
        try:
            self._wait_until_ready()
        except BaseException:
            self.discard()
            raise
        return self

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + START_S
        while not self.ready():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the gateway did not start:\n{self.log()[-4000:]}")
            time.sleep(0.05)

    def _start_stock(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        """Start `gunicorn -k gevent wsgi:app`, as docs/deployment.md describes."""
        for command in ("migrate", "seed"):
            self.manage(command)
        return self._popen_stock(log)

    def start_unready(self) -> None:
        """Start `gunicorn -k gevent wsgi:app` alone: no migration before it, no wait after it."""
        self.data.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = self._popen_stock(log)

    def _popen_stock(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "--bind", f"127.0.0.1:{self.port}", "wsgi:app"]
        return self._popen(command, log)

    def _popen(self, command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=self.root, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )

    def _starts_warm(self) -> bool:
        return not self.cold and self.root == ROOT and self.command == list(MANAGE)

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def manage(self, *arguments: str, timeout: float = 300) -> str:
        """Run an operator command on this installation and return its output."""
        if self._starts_warm():
            done = warm.run(["gateway.operator.command", *arguments], self.environment, timeout)
        else:
            command = [*self.command, *arguments]
            done = subprocess.run(
                command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=timeout
            )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def terminate(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def hang_up(self) -> None:
        """Reload the configuration."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def wait(self, seconds: float = 30) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Send SIGKILL to the arbiter and every worker, to simulate a power failure."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # The workers hold the listening socket until the kernel has ended them too.
        until = time.monotonic() + PORT_FREE_S
        while problem_of("127.0.0.1", self.port) and time.monotonic() < until:
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()

    def discard(self) -> None:
        """Kill the gateway at the end of a test that needs no clean shutdown."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # also workers without an arbiter
            self._process.wait()

    def get(self, path: str, timeout: float = 30) -> tuple[int, bytes]:
        """Send GET with the gateway's key and return status and body."""
        request = urllib.request.Request(self.address + path, headers={"Authorization": f"Bearer {self.key}"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def post(
        self, path: str, body: dict[str, Any], key: str = "", timeout: float = 30, **headers: str
    ) -> tuple[int, Any]:
        """Send POST and return status and JSON body."""
        given = {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), given, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")


Start = Callable[..., GatewayProcess]


def free_port() -> int:
    """Return a free port that no other pytest process chooses. It is below the ephemeral range, because the system
    could assign a port of that range before the server listens on it."""
    while True:
        port = FIRST_PORT + PORTS * forked.number + next(_ports) % PORTS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
