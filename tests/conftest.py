import argparse
import os
import sys

# The process that only hands tests out to others (`-n 2`, but not `-n 0`) waits for these in real threads.
WORKER = "PYTEST_XDIST_WORKER" in os.environ


def hands_out(words: list[str]) -> bool:
    """Whether pytest's command line asks for worker processes."""
    given = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    given.add_argument("-n", "--numprocesses", default="0")
    return given.parse_known_args(words)[0].numprocesses != "0"


if WORKER or not hands_out(sys.argv[1:]):
    from gevent import get_hub, monkey

    monkey.patch_all()
    if WORKER:
        # The next test comes from a real thread: the event loop must not think that nothing can happen any more.
        AWAKE = get_hub().loop.timer(0.2, 0.2)
        AWAKE.start(lambda: None)

import gc  # noqa: E402
import shutil  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from support import (  # noqa: E402
    cheap_disks,
    cheap_passwords,
    cheap_removals,
    cheap_starts,
    late_imports,
    postgres,
    servers,
    steady_examples,
    trust,
)
from support.brief_reports import keep_brief  # noqa: E402
from support.clock import FakeClock  # noqa: E402
from support.handed_tests import look_for_them  # noqa: E402
from support.ordering import long_first  # noqa: E402
from support.shared_rewriting import rewrite_share  # noqa: E402

from gateway import settings as settings_module  # noqa: E402
from gateway.clock import Clock  # noqa: E402
from gateway.settings import Settings  # noqa: E402
from gateway.store.database import Database, open_database  # noqa: E402
from gateway.store.migrations import migrate  # noqa: E402
from gateway.threads import Threads  # noqa: E402

# The suite tries the same examples each time, so that a change is judged by what it changed; new ones are searched
# with --hypothesis-profile=explore.
hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.register_profile("explore", deadline=None)
# `make fuzz`: new examples for as long as it is told.
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=3000, suppress_health_check=list(hypothesis.HealthCheck)
)
# `make check`: the first few of the steady ones.
hypothesis.settings.register_profile("few", derandomize=True, deadline=None, max_examples=10)
hypothesis.settings.load_profile("steady")

late_imports.put_off()
trust.without_public_authorities()
cheap_passwords.make_cheap()
cheap_starts.make_cheap()
cheap_disks.make_cheap()
cheap_removals.make_cheap()
steady_examples.make_steady()

POSTGRESQL_FIXTURES = {"postgres_url", "postgres_databases", "postgresql_url"}


def pytest_sessionstart(session: pytest.Session) -> None:
    look_for_them(session.config)
    if WORKER:
        keep_brief(session.config)
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        rewrite_share(session.config, number, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end: Python's search for garbage leaves it out, then and ever after, and comes
    less often."""
    gc.disable()
    try:
        return (yield)
    finally:
        late_imports.end_collection()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs PostgreSQL, by its fixtures or its parameter, before -m is looked at; several processes of pytest
    begin with what takes long."""
    for item in items:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if "postgresql" in params or not POSTGRESQL_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("postgresql")
    if WORKER:
        items[:] = long_first(items, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def threads() -> Iterator[Threads]:
    pool = Threads()
    yield pool
    pool.close()


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """A factory: settings(GATEWAY_X="…") is the test configuration with those variables, data in tmp_path."""

    def make(**environment: str) -> Settings:
        base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path / "data")}
        return settings_module.load(base | environment)

    return make


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with servers.run_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with servers.run_redis() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed SQLite file with every migration applied, to be copied."""
    path = tmp_path_factory.mktemp("template") / "gateway.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_databases(postgres_url: str) -> Iterator[postgres.Databases]:
    """Databases with every migration applied."""
    postgres.run_sql(postgres_url, "CREATE DATABASE migrated")
    _migrate(postgres.rename(postgres_url, "migrated"))
    databases = postgres.Databases(postgres_url, "migrated")
    yield databases
    databases.close()


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    """A migrated SQLite file of this test's own, not opened yet."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    shutil.copy(migrated_file, folder / "gateway.db")
    return f"sqlite:///{folder}/gateway.db"


@pytest.fixture
def postgresql_url(postgres_databases: postgres.Databases) -> Iterator[str]:
    """A migrated PostgreSQL database of this test's own, not opened yet."""
    url = postgres_databases.take()
    yield url
    postgres_databases.give(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Both stores in turn, migrated and empty."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def open_store(clock: FakeClock, threads: Threads) -> Iterator[Callable[..., Database]]:
    """A factory: open_store(url) is one more Database on it, as another process would have."""
    opened: list[Database] = []

    def make(url: str, pool_size: int = 5, pool_wait_s: float = 3.0) -> Database:
        config = settings_module.DatabaseSettings(url, "", pool_size, pool_wait_s)
        opened.append(open_database(config, clock, threads))
        return opened[-1]

    yield make
    for database in opened:
        database.close()


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database]) -> Database:
    return open_store(database_url)


@pytest.fixture
def sqlite_database(sqlite_url: str, open_store: Callable[..., Database]) -> Database:
    return open_store(sqlite_url)


def _migrate(url: str) -> None:
    threads = Threads()
    database = open_database(settings_module.DatabaseSettings(url, "", 2, 10.0), Clock(), threads)
    migrate(database)
    database.close()
    threads.close()
