"""The gateway under one other condition, relative to the usual one: `python -m bench.pairs [--only NAME]`.

The conditions are TLS to the upstream, a prompt of 48 KB, one and four limits, a limit for each of 10,000 end users,
and PostgreSQL. Both sides of a pair take turns in each round, and ratios are medians over the rounds. It ends with
status 1 when a ratio is above its limit.
"""

import argparse
import contextlib
import importlib
import secrets
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bench.peers import find_nginx
from bench.processes import RIG_CORE, BenchError, running, wait_for_port
from bench.report import judge
from bench.run import BUILD, PHASES, WARM_UP_S, Phase, build, run_load, run_once
from bench.steps import LIMITS, put_limit
from bench.targets import (
    ROOT,
    Target,
    check_answers,
    start_gateway,
    start_targets,
    write_request,
)

# An upstream with TLS and one without, each with connections of 100 requests, and both again with a new connection for
# each request. All proxies use the mock.
NGINX = """
daemon off; worker_processes 1; error_log {folder}/error.log; pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  tcp_nodelay on; ssl_certificate {certificate}; ssl_certificate_key {certificate}; ssl_session_cache shared:s:10m;
  ssl_protocols TLSv1.2 TLSv1.3; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
  upstream mock {{ server 127.0.0.1:{mock}; keepalive 512; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{kept}; keepalive_requests 100; location / {{ proxy_pass http://mock; }} }}
  server {{ listen 127.0.0.1:{kept_tls} ssl; keepalive_requests 100; location / {{ proxy_pass http://mock; }} }}
  server {{ listen 127.0.0.1:{new}; keepalive_timeout 0; location / {{ proxy_pass http://mock; }} }}
  server {{ listen 127.0.0.1:{new_tls} ssl; keepalive_timeout 0; location / {{ proxy_pass http://mock; }} }}
}}
"""
LONG_PROMPT = "word " * (48 * 1024 // 5)
Round = tuple[float, float]  # the figure of the side and of its base, in µs
# The generator writes one of 10,000 numbers into this header.
USER = "x-llmgateway-user: u00000"
STEADY_RATE = Phase("200-rps", 200, rate=200)
WARM_UP_REQUESTS = 30_000  # of which hardly any end user sends none
FULL_SPEED, LOW_RATE = PHASES[0], next(phase for phase in PHASES if phase.rate == 50)
STREAMS = next(phase for phase in PHASES if phase.stream)


@dataclass(frozen=True, slots=True)
class Pair:
    """`side` relative to `base`: a figure of a phase, its limit and its target (0: neither)."""

    name: str
    side: str
    base: str
    phase: Phase
    figure: str
    must: float = 0.0
    goal: float = 0.0


PAIRS = {
    "prompt": (Pair("CPU with a prompt of 48 KB", "long prompt", "small prompt", FULL_SPEED, "cpu_us", 1.7, 1.5),),
    "tls": (
        Pair("CPU with TLS, connections of 100 requests", "TLS", "no TLS", FULL_SPEED, "cpu_us", 1.4, 1.2),
        Pair("CPU with TLS, a connection for each request", "TLS, new", "no TLS, new", FULL_SPEED, "cpu_us"),
    ),
    "limits": (
        Pair("CPU with one limit", "one", "none", FULL_SPEED, "cpu_us", 1.1, 1.05),
        Pair("CPU with four limits", "four", "one", FULL_SPEED, "cpu_us", 1.1, 1.05),
        Pair("CPU of a stream with four limits", "four", "none", STREAMS, "cpu_us", 1.15, 1.05),
    ),
    "users": (
        Pair("CPU with a limit for each of 10,000 end users", "limit", "no limit", FULL_SPEED, "cpu_us", 1.5, 1.05),
        Pair("CPU with it at 200 rps", "limit", "no limit", STEADY_RATE, "cpu_us", 1.25, 1.05),
    ),
    "postgresql": (
        Pair("CPU with PostgreSQL", "PostgreSQL", "SQLite", FULL_SPEED, "cpu_us", 1.2, 1.1),
        Pair("added p50 with PostgreSQL at 50 rps", "PostgreSQL", "SQLite", LOW_RATE, "added_p50", 1.4, 1.2),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when every ratio is within its limit; otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=PAIRS, help="one of the conditions")
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which both sides take turns (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (3)")
    parser.add_argument("--port", type=int, default=19_500, help="first of the ports to use (19500)")
    options = parser.parse_args(arguments)
    failed = False
    try:
        build()
        for name in [options.only] if options.only else PAIRS:
            for pair, rounds in measure(name, options).items():
                ratio = statistics.median(ratios_of(rounds))
                failed = failed or bool(pair.must and ratio > pair.must)
                print(write_line(pair, ratio, rounds), flush=True)
    except BenchError as error:
        print(f"pairs: {error}", file=sys.stderr)
        return 1
    return int(failed)


def ratios_of(rounds: list[Round]) -> list[float]:
    return [side / base for side, base in rounds]


def write_line(pair: Pair, ratio: float, rounds: list[Round]) -> str:
    """Return both sides of a pair beside each other in µs, and their ratio."""
    side, base = (statistics.median(values) for values in zip(*rounds, strict=True))
    shown = ", ".join(f"{one:.2f}" for one in ratios_of(rounds))
    both = f"{pair.base} {base:.0f} µs, {pair.side} {side:.0f} µs"
    return f"{pair.name}: {both}: × {ratio:.2f} (rounds: {shown}){judge(ratio, pair.must, pair.goal)}"


def measure(condition: str, options: argparse.Namespace) -> dict[Pair, list[Round]]:
    """Return the figures of each round for the pairs of a condition. Raises BenchError."""
    pairs = PAIRS[condition]
    rounds: dict[Pair, list[Round]] = {pair: [] for pair in pairs}
    with tempfile.TemporaryDirectory(prefix="pairs-") as name:
        folder = Path(name)
        with (
            start_targets({}, options.port, folder, BUILD / "mock") as (direct,),
            STARTS[condition](options.port + 10, direct.port, folder) as sides,
        ):
            for target, prompt in sides.values():
                check_answers(target)
                load(FULL_SPEED, target, WARM_UP_S, folder, prompt)
                warmed = 0
                while prompt == USER and warmed < WARM_UP_REQUESTS:
                    warmed += load(FULL_SPEED, target, WARM_UP_S, folder, prompt)["good"]
            for _ in range(options.rounds):
                for pair in pairs:
                    base = direct_p50(pair, direct, options.seconds, folder)
                    values = []
                    for side in (pair.side, pair.base):
                        target, prompt = sides[side]
                        figures = load(pair.phase, target, options.seconds, folder, prompt)
                        values.append(figures["cpu_us"] if pair.figure == "cpu_us" else figures["whole"]["p50"] - base)
                    rounds[pair].append((values[0], values[1]))
    return rounds


def direct_p50(pair: Pair, direct: Target, seconds: float, folder: Path) -> float:
    """Return the p50 of the mock itself in this round; 0 where the pair compares CPU."""
    if pair.figure == "cpu_us":
        return 0.0
    return run_load(pair.phase, direct, seconds, folder)["whole"]["p50"]


def load(phase: Phase, target: Target, seconds: float, folder: Path, prompt: str) -> dict:
    """Return the figures of one measurement. BenchError when an answer was not good."""

    def write(port: int, markers: str, stream: bool, model: str) -> bytes:
        if prompt == USER:
            return write_request(port, markers, stream, model).replace(b"\r\n", f"\r\n{USER}\r\n".encode(), 1)
        return write_request(port, prompt + markers, stream, model)

    figures = run_once(phase, target, seconds, folder, write)
    if figures["errors"] or not figures["good"]:
        raise BenchError(f"{target.name}: {figures['errors']} answers were not good")
    return figures


def use_database(url: str) -> dict[str, str]:
    """Return the variables of a gateway on PostgreSQL, which demands its own secrets."""
    names = ("GATEWAY_API_KEY_HASH_SECRET", "GATEWAY_ENCRYPTION_KEY")
    return {"DATABASE_URL": url} | {name: secrets.token_urlsafe(48) for name in names}


def import_from_tests(name: str, package: str = "support") -> ModuleType:
    """Import a module of tests/support, or of another package of tests."""
    sys.path.insert(0, str(ROOT / "tests"))
    return importlib.import_module(f"{package}.{name}")


@contextlib.contextmanager
def start_for_prompts(port: int, mock: int, folder: Path) -> Iterator[dict[str, tuple[Target, str]]]:
    """One gateway, with short and long prompts."""
    with start_gateway(port, mock, folder) as gateway:
        yield {"small prompt": (gateway, ""), "long prompt": (gateway, LONG_PROMPT)}


@contextlib.contextmanager
def start_for_tls(port: int, mock: int, folder: Path) -> Iterator[dict[str, tuple[Target, str]]]:
    """A gateway for each of four upstreams: with and without TLS, with kept and with new connections."""
    certificate = import_from_tests("certificates").write_certificate(folder / "certificate.pem", "127.0.0.1")
    ports = {name: port + number for number, name in enumerate(("kept", "kept_tls", "new", "new_tls"))}
    path = folder / "nginx.conf"
    path.write_text(NGINX.format(folder=folder, certificate=certificate, mock=mock, **ports))
    addresses = {
        "no TLS": f"http://127.0.0.1:{ports['kept']}/v1",
        "TLS": f"https://127.0.0.1:{ports['kept_tls']}/v1",
        "no TLS, new": f"http://127.0.0.1:{ports['new']}/v1",
        "TLS, new": f"https://127.0.0.1:{ports['new_tls']}/v1",
    }
    with contextlib.ExitStack() as stack:
        command = [find_nginx(), "-c", str(path), "-p", str(folder)]
        wait_for_port(stack.enter_context(running("upstream", command, RIG_CORE, folder)), ports["new_tls"])
        sides: dict[str, tuple[Target, str]] = {}
        for number, (name, address) in enumerate(addresses.items()):
            own = folder / f"gateway-{number}"
            own.mkdir()
            more = {"LLM_OPENAI_BASE_URL": address, "SSL_CERT_FILE": certificate}
            sides[name] = (stack.enter_context(start_gateway(port + 10 + number, mock, own, more)), "")
        yield sides


@contextlib.contextmanager
def start_for_postgresql(port: int, mock: int, folder: Path) -> Iterator[dict[str, tuple[Target, str]]]:
    """A gateway on each store; PostgreSQL is a new server in its default settings."""
    servers = import_from_tests("servers")
    own = folder / "postgresql"
    own.mkdir()
    with (
        servers.run_postgres(servers.DEFAULTS) as url,
        start_gateway(port, mock, folder) as sqlite,
        start_gateway(port + 1, mock, own, use_database(url)) as postgresql,
    ):
        yield {"SQLite": (sqlite, ""), "PostgreSQL": (postgresql, "")}


@contextlib.contextmanager
def start_for_limits(port: int, mock: int, folder: Path) -> Iterator[dict[str, tuple[Target, str]]]:
    """Gateways without limits of any subject, with one and with four."""
    counts = {"none": 0, "one": 1, "four": 4}
    with contextlib.ExitStack() as stack:
        sides = {}
        for number, (name, count) in enumerate(counts.items()):
            own = folder / name
            own.mkdir()
            sides[name] = stack.enter_context(start_gateway(port + number, mock, own)), ""
            for index in range(count):
                put_limit(f"limit-{index}", LIMITS[index], own / "data")
        yield sides


@contextlib.contextmanager
def start_for_users(port: int, mock: int, folder: Path) -> Iterator[dict[str, tuple[Target, str]]]:
    """A gateway with a limit for each end user and one without; both get requests of 10,000 end users."""
    own = folder / "limited"
    own.mkdir()
    with start_gateway(port, mock, folder) as plain, start_gateway(port + 1, mock, own) as limited:
        put_limit("users", "each user", own / "data")
        yield {"no limit": (plain, USER), "limit": (limited, USER)}


STARTS = {
    "limits": start_for_limits,
    "users": start_for_users,
    "prompt": start_for_prompts,
    "tls": start_for_tls,
    "postgresql": start_for_postgresql,
}


if __name__ == "__main__":
    sys.exit(main())
