"""Empty PostgreSQL databases for tests. A database is emptied after each use, which is much faster than creating
one."""

import itertools
from collections.abc import Callable

import psycopg

SHAPE = """SELECT relname, relkind, attname, atttypid, atttypmod, attnotnull, pg_get_expr(adbin, adrelid)
FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm') AND attnum > 0 AND NOT attisdropped
ORDER BY relname, attnum"""
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
SEQUENCES = """SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL"""
DISCONNECT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""


TEMPLATE = "migrated"  # a database that no test uses


class Databases:
    """Provides a process with URLs of migrated databases on a server that several processes share."""

    def __init__(self, server_url: str, migrate: Callable[[str], None], process: int) -> None:
        self._server_url, self._process = server_url, process
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._connections: dict[str, psycopg.Connection] = {}
        with psycopg.connect(server_url, autocommit=True) as connection:
            # The first process creates the template. A database in use cannot be copied, so a lock is needed.
            connection.execute("SELECT pg_advisory_lock(1)")
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone():
                self._make_template(migrate)
            self._look_at_template()

    def take(self) -> str:
        if self._free:
            return self._free.pop()
        name = f"test_{self._process}_{next(self._numbers)}"
        # The default strategy writes each page to the log, which takes three times as long.
        create = f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy"
        run_sql(self._server_url, "SELECT pg_advisory_lock(1)", create)
        return rename(self._server_url, name)

    def give(self, url: str) -> None:
        """Take a database back and empty it. A database with changed tables is dropped."""
        connection = self._connect(url)
        connection.execute(DISCONNECT)
        for (name,) in connection.execute(TABLES).fetchall():
            if name not in self._tables:
                connection.execute(f'DROP TABLE public."{name}" CASCADE')
        if connection.execute(SHAPE).fetchall() == self._shape:
            self._empty(connection)
            self._free.append(url)
        else:
            name = url.rpartition("?")[0].rpartition("/")[2]
            self._connections.pop(url).close()
            run_sql(self._server_url, f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _make_template(self, migrate: Callable[[str], None]) -> None:
        run_sql(self._server_url, f"CREATE DATABASE {TEMPLATE}")
        migrate(rename(self._server_url, TEMPLATE))
        with psycopg.connect(rename(self._server_url, TEMPLATE), autocommit=True) as connection:
            connection.execute("CREATE SCHEMA seed")
            for (name,) in connection.execute(TABLES).fetchall():
                connection.execute(f'CREATE TABLE seed."{name}" AS TABLE public."{name}"')

    def _look_at_template(self) -> None:
        with psycopg.connect(rename(self._server_url, TEMPLATE), autocommit=True) as connection:
            self._tables = [name for (name,) in connection.execute(TABLES)]
            self._shape = connection.execute(SHAPE).fetchall()
            self._seeded = self._filled(connection)

    def _connect(self, url: str) -> psycopg.Connection:
        """Return the connection for emptying this database. It is kept, because a new connection reads the whole
        catalogue first."""
        try:
            self._connections[url].execute("SELECT 1")
        except (KeyError, psycopg.OperationalError):
            self._connections[url] = psycopg.connect(url, autocommit=True)
        return self._connections[url]

    def _empty(self, connection: psycopg.Connection) -> None:
        # Foreign keys are not checked on this connection.
        statements = ["SET session_replication_role = replica"]
        filled = self._filled(connection)
        statements += [f'DELETE FROM public."{name}"' for name in filled]
        statements += [f'INSERT INTO public."{name}" SELECT * FROM seed."{name}"' for name in self._seeded]
        # Without VACUUM: after it, the planner would assume empty tables and use sequential scans.
        connection.execute("; ".join([*statements, SEQUENCES]))

    def _filled(self, connection: psycopg.Connection) -> list[str]:
        """Return the tables that have rows."""
        looks = (f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM public.\"{name}\")" for name in self._tables)
        return [name for (name,) in connection.execute(" UNION ALL ".join(looks))]


def run_sql(url: str, *statements: str) -> None:
    """Run each statement in its own transaction over one connection."""
    with psycopg.connect(url, autocommit=True) as connection:
        for sql in statements:
            connection.execute(sql)


def rename(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    return url.replace("/postgres?", f"/{name}?")
