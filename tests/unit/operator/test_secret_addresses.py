"""No command and no way to a start shows a part of a secret in an address, however the address is spelled."""

import logging
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.configuration import settings
from gateway.configuration.settings import SettingsError
from gateway.operator import command, start
from gateway.secret_text import hide_secrets, mask_address
from gateway.server.logging_setup import formatter_of

PIECES = ("Zq7wKx", "mV4tBn", "R9ydLs")
JOINTS = (
    *("", "%", "%zz", "%2F", "/", "?", "#", "@", ":", "[", "]", "&", "=", "%00", "\\", "'", '"', "+", " ", "\t"),
    *("é", "\u2100"),  # the latter becomes letters with a slash in another form of Unicode
)
HOST = "127.0.0.1:9"  # a closed port
PLACES = (
    "{scheme}://bob:{secret}@{host}/{name}",
    "{scheme}://:{secret}@{host}/{name}",
    "{scheme}://bob:{secret}@{host}:port/{name}",
    "{scheme}://bob:{secret}@{host}9999999/{name}",
    "{scheme}://bob:{secret}@[::1/{name}",
    "{scheme}://bob:{secret}@/{name}",
    "{scheme}://bob:{secret}",
    "{scheme}://bob:{secret}@{host}/{name}?nosuch=1",
    "{scheme}://bob:{secret}@{host}/{name}?sslmode=odd&connect_timeout=x",
    "{scheme}://bob:{secret}@{host}/{name}?connect_timeout=x",
    "{scheme}://bob:{secret}@{host}/{name}?socket_timeout=x",
    "{scheme}://{host}/{name}?password={secret}",
    "{scheme}://bob@{host}/{name}?sslpassword={secret}&nosuch=1",
    "{scheme}://bob@{host}/{name}?sentinel_password={secret}",
    "{scheme}://bob:{secret}@{host},other:x/{name}",
    "nosuch://bob:{secret}@{host}/{name}",
    "bob:{secret}@{host}/{name}",
    "password={secret} host=localhost dbname=x",
    "//bob:{secret}@{host}",
)
# Variable → schemes. The replica needs a primary.
ADDRESSES = {
    "DATABASE_URL": ("postgresql", "postgres", "mysql"),
    "GATEWAY_DATABASE_REPLICA_URL": ("postgresql", "sqlite"),
    "REDIS_URL": ("redis", "rediss", "redis+sentinel", "redis+cluster", "unix", "redis+odd"),
    "GATEWAY_ANALYTICS_CLICKHOUSE_URL": ("http", "https", "clickhouse"),
    "HTTPS_PROXY": ("http", "https", "socks5"),
    "HTTP_PROXY": ("http",),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("http", "grpc"),
    "MCP_GATEWAY_URL": ("https", "ftp"),
    "GROQ_BASE_URL": ("https", "http"),
}
DRAWS = 60
Output = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Output:
    """Run a command in this process; returns its status and everything that was written."""
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("GATEWAY_DATABASE_POOL_WAIT_S", "0.3")
    monkeypatch.setenv("GATEWAY_REDIS_TIMEOUT_S", "0.2")
    for name in ("GATEWAY_API_KEY_HASH_SECRET", "GATEWAY_ENCRYPTION_KEY"):
        monkeypatch.setenv(name, "a secret of the tests that is long")

    def run_command(*arguments: str) -> tuple[int, str]:
        status = command.run(list(arguments))
        output = capfd.readouterr()
        return status, output.out + output.err

    return run_command


def draw_address(rng: random.Random, name: str) -> str:
    place = rng.choice(PLACES)
    joints = [joint for joint in JOINTS if joint != "@" or "{host}" in place]  # else the last piece is the host
    secret = rng.choice(joints).join(rng.sample(PIECES, rng.randint(1, 3)))
    if rng.random() < 0.3:
        secret = rng.choice(joints) + secret + rng.choice(joints)
    return place.format(scheme=rng.choice(ADDRESSES[name]), secret=secret, host=HOST, name="gateway")


def shows_secret(text: str) -> bool:
    """Return whether four characters of a secret in a row stand in a text."""
    return any(piece[at : at + 4] in text for piece in PIECES for at in range(len(piece) - 3))


def set_address(monkeypatch: pytest.MonkeyPatch, name: str, address: str) -> None:
    if name == "GATEWAY_DATABASE_REPLICA_URL":
        monkeypatch.setenv("DATABASE_URL", f"postgresql://bob@{HOST}/gateway")
    monkeypatch.setenv(name, address)


@pytest.mark.parametrize("name", ADDRESSES)
def test_no_check_of_a_configuration_shows_a_part_of_a_secret(
    run: Output, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rng = random.Random(name)
    for _ in range(DRAWS):
        address = draw_address(rng, name)
        set_address(monkeypatch, name, address)
        status, output = run("config", "check")
        assert not shows_secret(output) and "Traceback" not in output, (address, output)
        if status:
            words = (name, name.removesuffix("_URL").lower(), "proxy", "endpoint", "gateway_url", "base_url")
            assert any(word in output for word in words), (address, output)
        _, output = run("config", "show")
        assert not shows_secret(output) and "Traceback" not in output, (address, output)
        try:
            start.examine()
        except SettingsError as error:
            assert status and not shows_secret(str(error)), (address, error)
        else:
            assert not status, address
        assert not shows_secret(repr(settings.examine()[0])), address


@pytest.mark.parametrize("name", ["DATABASE_URL", "GATEWAY_DATABASE_REPLICA_URL", "REDIS_URL"])
@pytest.mark.parametrize("arguments", [("status",), ("doctor",), ("keys", "list"), ("migrate",), ("serve-info",)])
def test_no_command_shows_a_part_of_a_secret(
    run: Output, monkeypatch: pytest.MonkeyPatch, name: str, arguments: tuple[str, ...]
) -> None:
    rng = random.Random(f"{name} {arguments}")
    for _ in range(4):
        address = draw_address(rng, name)
        set_address(monkeypatch, name, address)
        _, output = run(*arguments)
        assert not shows_secret(output) and "Traceback" not in output, (address, output)


@pytest.mark.parametrize("place", PLACES)
def test_masked_addresses_have_no_part_of_a_secret(place: str) -> None:
    rng = random.Random(place)
    for _ in range(300):
        joint = rng.choice(JOINTS)
        if joint == "@" and "{host}" not in place:
            continue  # the last piece is the host
        secret = joint.join(rng.sample(PIECES, rng.randint(1, 3)))
        address = place.format(scheme=rng.choice(("postgresql", "redis", "http")), secret=secret, host=HOST, name="x")
        assert not shows_secret(mask_address(address)), address


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_log_line_shows_the_password_of_an_address(form: str) -> None:
    rng = random.Random(form)
    quiet = re.compile(r"[\s\"]")
    for _ in range(300):
        secret = rng.choice([joint for joint in JOINTS if not quiet.search(joint)]).join(PIECES)
        address = f"{rng.choice(('postgresql', 'redis', 'http'))}://bob:{secret}@db.example:5432/gateway"
        try:
            raise ValueError(f"cannot read {address}")
        except ValueError as error:
            info = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("gateway", logging.ERROR, "x.py", 1, "cannot use %s twice", (address,), info)
        line = formatter_of(form).format(record)  # type: ignore[arg-type]
        assert not shows_secret(line) and "db.example" in line, line


def test_addresses_without_a_secret_stay_in_the_log() -> None:
    for text in (
        "https://eu.example/v1/projects/x/models/claude@20240620:predict failed",
        "redis://db.example:6379/0 and https://[::1]:8080/a?b=c#d",
        "owner@localhost http://127.0.0.1:4001",
    ):
        assert hide_secrets(text) == text


def test_a_traceback_of_a_command_has_no_secret(run: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", PIECES[0] * 3)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"no such thing at postgresql://bob:{PIECES[1]}@db/x with {PIECES[0] * 3}")

    monkeypatch.setattr("gateway.operator.config.find_problems", fail)
    status, output = run("config", "check")
    assert status == 1 and "RuntimeError" in output and not shows_secret(output)
