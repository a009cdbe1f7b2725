"""Fresh PostgreSQL databases for tests: one is made, then emptied after each use, which is far quicker."""

import itertools

import psycopg

SHAPE = """SELECT table_name, relkind, column_name, data_type, is_nullable, column_default
FROM information_schema.columns JOIN pg_class ON oid = to_regclass(quote_ident(table_name))
WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"""
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
SEQUENCES = """SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL"""
DISCONNECT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""


class Databases:
    """Hands out URLs of databases that look like `template`, a migrated database that nobody uses."""

    def __init__(self, server_url: str, template: str) -> None:
        self._server_url, self._template = server_url, template
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        with psycopg.connect(rename(server_url, template), autocommit=True) as connection:
            self._tables = [name for (name,) in connection.execute(TABLES)]
            self._shape = connection.execute(SHAPE).fetchall()
            connection.execute("CREATE SCHEMA seed")
            for name in self._tables:
                connection.execute(f'CREATE TABLE seed."{name}" AS TABLE public."{name}"')

    def take(self) -> str:
        if self._free:
            return self._free.pop()
        name = f"test_{next(self._numbers)}"
        run_sql(self._server_url, f"CREATE DATABASE {name} TEMPLATE {self._template}")
        return rename(self._server_url, name)

    def give(self, url: str) -> None:
        """Take a database back, emptied; one whose tables a test has changed is dropped."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(DISCONNECT)
            for (name,) in connection.execute(TABLES).fetchall():
                if name not in self._tables:
                    connection.execute(f'DROP TABLE public."{name}" CASCADE')
            same = connection.execute(SHAPE).fetchall() == self._shape
            if same:
                self._empty(connection)
        if same:
            self._free.append(url)
        else:
            name = url.rpartition("?")[0].rpartition("/")[2]
            run_sql(self._server_url, f"DROP DATABASE {name} WITH (FORCE)")

    def _empty(self, connection: psycopg.Connection) -> None:
        # Rows come and go here without their foreign keys being looked at.
        statements = ["SET session_replication_role = replica"]
        for name in self._tables:
            statements.append(f'DELETE FROM public."{name}"')
            statements.append(f'INSERT INTO public."{name}" SELECT * FROM seed."{name}"')
        connection.execute("; ".join([*statements, SEQUENCES]))


def run_sql(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql)


def rename(url: str, name: str) -> str:
    """The same server, another database."""
    return url.replace("/postgres?", f"/{name}?")
