"""Addresses of PostgreSQL: which are valid, and what is said about others."""

import pytest

from gateway.store.database_addresses import postgresql_problem


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://gateway:word@db.example/gateway",
        "postgres://gateway@db.example:5432/gateway?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql+psycopg://gateway:w%40rd%2F%25@[::1]:6432/gateway",
        "postgresql://a:b@one:5432,two:5433/gateway?target_session_attrs=read-write",
        "postgresql://a:b@one,two/gateway",
        "postgresql:///gateway?host=/var/run/postgresql",
        "postgresql://%2Fvar%2Frun/gateway",
        "postgresql://a:w?rd#x@db/gateway?connect_timeout=5&application_name=x",
    ],
)
def test_a_valid_address_has_no_problem(url: str) -> None:
    assert postgresql_problem(url) == ""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://a:pass%word@db/x", "as %25"),
        ("postgresql://a:pa@word@db/x", "as %40"),
        ("postgresql://a:pa/word@db/x", "before the host"),
        ("postgresql://a:pa word@db/x", "no blanks"),
        ("postgresql://a:word@db:99999/x", "the port"),
        ("postgresql://a:word@db:port/x", "the port"),
        ("postgresql://a:word@d!b/x", "the host"),
        ("postgresql://a:word@[::1/x", "cannot be read"),
        ("postgresql://a:word@db/x?sslmod=require", "did you mean sslmode"),
        ("postgresql://a:word@db/x?sslmode=odd", "sslmode is one of"),
        ("postgresql://a:word@db/x?connect_timeout=soon", "connect_timeout is a whole number"),
        ("postgresql://a:word@one,two,three/x?port=1,2", "a port for each host"),
    ],
)
def test_a_mistake_is_named_without_the_password(url: str, problem: str) -> None:
    found = postgresql_problem(url)
    assert problem in found and "word@" not in found and "pa" not in found.replace("password", "").replace("part", "")
