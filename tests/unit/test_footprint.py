"""Modules that a serving worker must not load: each takes megabytes in every worker."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
SERVED = """
import runpy, sys
conf = runpy.run_path("gunicorn.conf.py")
import gateway.server.worker
from gateway.application.app import create_app
app = create_app()
for path in ("/", "/livez", "/readyz", "/metrics", "/v1/models", "/models/"):
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "HTTP_HOST": "localhost", "wsgi.url_scheme": "http"}
    app(environ, lambda status, headers: None)
app.close()
names = {name for name in sys.modules if sys.modules[name] is not None}
print(*sorted(names | {name.partition(".")[0] for name in names}))
"""
DRIVERS = {"psycopg", "psycopg_binary", "psycopg2", "redis", "pymysql", "sqlalchemy"}
OTHERS = {"authlib", "joserfc", "segno", "cryptography", "opentelemetry"}
OTHERS |= {"apispec", "argon2", "email.headerregistry", "smtplib", "xml"}
OTHERS |= {"playhouse.migrate", "gateway.providers.sandbox.sandbox_server"}
OTHERS |= {"flask", "werkzeug", "jinja2", "click", "gateway.surfaces.management", "gateway.surfaces.console"}
OTHERS |= {"prometheus_client"}
OTHERS |= {"pytest", "hypothesis", "requests", "tornado", "twisted"}


@pytest.fixture
def loaded(sqlite_url: str, tmp_path: Path) -> set[str]:
    """Return the packages and modules that a worker on SQLite without Redis loads."""
    environment = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path / "data"), "DATABASE_URL": sqlite_url}
    done = subprocess.run(
        [sys.executable, "-c", SERVED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_worker_on_sqlite_loads_no_driver_of_another_store_and_nothing_that_it_may_never_use(loaded: set[str]):
    assert "gateway" in loaded and "peewee" in loaded
    assert not loaded & (DRIVERS | OTHERS)
