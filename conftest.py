from gevent import monkey

monkey.patch_all()

import selectors  # noqa: E402

# gevent's default keeps watching closed files, which servers and clients of WebSockets leave: then the loop spins,
# misses the end of another connection, or aborts the process.
selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]

from greenlet import _greenlet  # noqa: E402

# After the end of a thread, greenlet imports `gc` in any frame of the main thread. In a frame without `__import__`, as
# in a namedtuple's constructor, that fails and is reported as an ignored exception of the test that runs.
_greenlet.enable_optional_cleanup(False)

import gc  # noqa: E402

# Nearly all objects of the imports live until the end; pytest_runtest_teardown collects.
gc.disable()

import os  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from hypothesis.internal.conjecture import providers as example_sources  # noqa: E402
from support import (  # noqa: E402
    cheap_disks,
    cheap_passwords,
    cheap_removals,
    forked,
    late_imports,
    leftovers,
    memory_disk,
    postgres,
    prepared,
    servers,
    shared_rewriting,
    warm,
)
from support.clock import FakeClock  # noqa: E402

from gateway.accounts.passwords import Passwords  # noqa: E402
from gateway.clock import Clock  # noqa: E402
from gateway.configuration import settings as settings_module  # noqa: E402
from gateway.configuration.settings import Settings  # noqa: E402
from gateway.runtime.threads import Threads  # noqa: E402
from gateway.store.database import Database, open_database  # noqa: E402
from gateway.store.migrations import migrate  # noqa: E402

# The suite uses the same examples in each run, so that failures come from the change. --hypothesis-profile=explore
# searches new examples.
hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, max_examples=20)
# `make fuzz`: new examples for all properties, and more of them for parsers and operations for the configured time.
hypothesis.settings.register_profile("explore", deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=3000, suppress_health_check=list(hypothesis.HealthCheck)
)
# `make check`: the first few of the fixed examples.
hypothesis.settings.register_profile("few", derandomize=True, deadline=None, max_examples=10)
hypothesis.settings.load_profile("steady")

# A folder without certificates. Each client of httpx and of the SDKs would otherwise read the public authorities, which
# takes some 20 ms even for a URL without TLS; tests with TLS use their own certificates. httpx prefers the file.
# The clients read the environment, which therefore must not name a proxy.
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent / "tests" / "support")
os.environ.pop("SSL_CERT_FILE", None)
for name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(name, None)
    os.environ.pop(name.upper(), None)

# Pytest reads it for the parent of all `tmp_path`.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory_disk.find_folder())

late_imports.put_off()
cheap_passwords.make_cheap()
cheap_disks.make_cheap()
cheap_removals.make_cheap()

# Garbage is collected after a test with more new objects; the old objects are examined after so many collections.
MOST_OBJECTS = 10_000
COLLECTIONS = 10

POSTGRESQL_FIXTURES = {"postgres_url", "postgres_databases", "postgresql_url"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="share the tests between so many processes")


def pytest_configure(config: pytest.Config) -> None:
    leftovers.adopt()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the run ends its processes


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    warm.end()
    leftovers.end_all()


def pytest_sessionstart(session: pytest.Session) -> None:
    if hypothesis.settings.default.derandomize:
        # No example comes from the literals of all imported files, which take seconds to read, and an edit of any file
        # would change the examples.
        no_literals = example_sources._local_constants
        example_sources._get_local_constants = lambda: no_literals
    if session.config.option.processes > 1:
        # In parallel to collecting, which keeps one processor busy.
        shared_rewriting.rewrite_from_the_end(session.config)
        warm.begin()
        prepared.keep_catalogue()  # many test modules load it when they are imported


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if option.processes < 2 or option.collectonly or session.testsfailed or len(session.items) < 2:
        return None
    prepared.import_late()
    prepared.keep_fingerprints()
    prepared.keep_migrations()
    gc.freeze()  # for the processes that are forked from this one
    forked.run(session, option.processes)
    gc.freeze()  # pytest collects garbage five times at its end, and no test ran here
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the collected objects, which live until the end: the garbage collector then skips them."""
    try:
        return (yield)
    finally:
        late_imports.end_collection()
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Collect garbage between tests only. Collected at any moment, a client of a vendor closes its connections in the
    event loop or in a native thread, which fails there, in a test that did not make it.

    After a module with many new objects the remaining ones are frozen: imported libraries and caches, a million objects
    that each further collection would examine."""
    objects, _, collections = gc.get_count()
    if objects > MOST_OBJECTS:
        gc.collect(1 if collections < COLLECTIONS else 2)
    yield
    if (nextitem is None or nextitem.path != item.path) and (gc.get_count()[0] > MOST_OBJECTS or collections):
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need PostgreSQL, by their fixtures or parameters, before -m is evaluated."""
    for item in items:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if "postgresql" in params or not POSTGRESQL_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("postgresql")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def threads() -> Iterator[Threads]:
    pool = Threads()
    yield pool
    pool.close()


@pytest.fixture
def password_threads() -> Iterator[Passwords]:
    pool = Passwords()
    yield pool
    pool.close()


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """Return a factory: settings(GATEWAY_X="…") is the test configuration with those variables and data in tmp_path."""

    def make(**environment: str) -> Settings:
        base = prepared.ENVIRONMENT | {"GATEWAY_DATA_DIR": str(tmp_path / "data")}
        return settings_module.load(base | environment)

    return make


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with forked.server("postgres") as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with servers.run_redis() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed SQLite file with every migration applied, to be copied."""
    path = tmp_path_factory.mktemp("template") / "gateway.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_databases(postgres_url: str) -> Iterator[postgres.Databases]:
    """Databases with every migration applied."""
    databases = postgres.Databases(postgres_url, _migrate, forked.number)
    yield databases
    databases.close()


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    """Return a migrated SQLite file for this test, which is not open yet."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    shutil.copy(migrated_file, folder / "gateway.db")
    return f"sqlite:///{folder}/gateway.db"


@pytest.fixture
def postgresql_url(postgres_databases: postgres.Databases) -> Iterator[str]:
    """Yield a migrated PostgreSQL database for this test, which is not open yet."""
    url = postgres_databases.take()
    yield url
    postgres_databases.give(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Yield both stores in turn, migrated and empty."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def open_store(clock: FakeClock, threads: Threads) -> Iterator[Callable[..., Database]]:
    """Return a factory: open_store(url) opens another Database on the store, as another process would."""
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
    prepared.settle(database)
    database.close()
    threads.close()
