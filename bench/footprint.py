"""The memory of a worker and the disk space of a request: `python -m bench.footprint [--requests 1000]`.

A stock gateway is started on SQLite in an empty folder, once for each line of the table, with one thing more switched
on than the first line has. It answers chat requests by its sandbox, which need no other process. Bytes are those of the
pages of all tables and their indices, as SQLite counts them (dbstat), less what an empty installation has. Memory is
the resident set, and the proportional one, in which shared pages are split between master and worker.
"""

import argparse
import contextlib
import http.client
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.processes import BenchError, Process, pss_mb, refuse_taken, running, tree, wait_for_port

KEY = "llmgtwy_" + "k" * 40
PROMPT = "Say something about the number {}, in a sentence or two, and nothing about any other number."
SETTLE_S = 3.0
MAX_READY_S = 60.0
PAGES = "SELECT m.tbl_name, SUM(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY m.tbl_name"


class Variant(NamedTuple):
    """One line of the table: settings of the gateway, options of the project, headers and path of the requests."""

    name: str
    settings: Mapping[str, str] = {}
    project: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    path: str = "/v1/chat/completions"


VARIANTS = (
    Variant("as installed"),
    Variant("routing decisions not kept (routing.decision_days = 0)", {"GATEWAY_ROUTING_DECISION_DAYS": "0"}),
    Variant("a label (x-request-id)", headers={"x-request-id": "label-{}"}),
    Variant("metadata (one header X-LLMGateway-Team)", headers={"x-llmgateway-team": "team-{}"}),
    Variant("a session of an agent (x-session-id)", headers={"x-session-id": "5f0e0c1a-aaaa-bbbb-cccc-000000000000"}),
    Variant("Idempotency-Key", headers={"idempotency-key": "key-{}"}),
    Variant("response cache (projects set --cache)", project=("--cache",)),
    Variant("payloads (projects set --retention retain)", project=("--retention", "retain")),
    Variant("stored responses (POST /v1/responses)", path="/v1/responses"),
)


class Footprint(NamedTuple):
    """Memory in MB before and after the requests, and bytes by table."""

    idle: dict[str, tuple[float, float]]
    busy: dict[str, tuple[float, float]]
    tables: dict[str, int]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.footprint", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1000, help="requests for each line (1000)")
    parser.add_argument("--port", type=int, default=19_700, help="the gateway's port (19700)")
    parser.add_argument("--only", type=int, default=len(VARIANTS), help="only the first lines of the table")
    options = parser.parse_args(arguments)
    try:
        refuse_taken(options.port)
        empty = measure(VARIANTS[0], 0, options.port).tables
        found = [(one.name, measure(one, options.requests, options.port)) for one in VARIANTS[: options.only]]
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    report(found, empty, options.requests)
    return 0


def measure(variant: Variant, requests: int, port: int) -> Footprint:
    """Start a gateway, send the requests, stop it, and look at what it left."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        own = {one: value for one, value in os.environ.items() if not one.startswith(("GATEWAY_", "LLM_"))}
        environment = own | {
            "GATEWAY_DATA_DIR": str(folder / "data"),
            "GATEWAY_BOOTSTRAP_API_KEY": KEY,
            "GATEWAY_BOOTSTRAP_CREDITS_USD": "unlimited",
            "GATEWAY_ENV": "production",
            "PORT": str(port),
            **variant.settings,
        }
        command = [sys.executable, "-m", "gateway.operator.command"]
        with running("gateway", [*command, "serve"], 0, folder, environment) as gateway:
            wait_until_ready(gateway, port)
            if variant.project:
                choose(command, environment, variant.project)
            time.sleep(SETTLE_S)
            idle = memory_of(gateway)
            send(variant, requests, port)
            time.sleep(SETTLE_S)
            busy = memory_of(gateway)
        return Footprint(idle, busy, tables_of(folder / "data" / "gateway.db"))


def wait_until_ready(gateway: Process, port: int) -> None:
    wait_for_port(gateway, port)
    ends = time.monotonic() + MAX_READY_S
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), connected(port) as connection:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise BenchError(f"the gateway did not become ready:\n{gateway.tail()}")


@contextlib.contextmanager
def connected(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


def choose(command: list[str], environment: Mapping[str, str], options: tuple[str, ...]) -> None:
    """Switch options of the first project on."""
    listed = subprocess.run([*command, "projects", "list", "--json"], env=environment, capture_output=True, check=True)
    project = json.loads(listed.stdout)[0]["id"]
    subprocess.run([*command, "projects", "set", project, *options], env=environment, capture_output=True, check=True)


def send(variant: Variant, requests: int, port: int) -> None:
    """Send distinct requests, one after the other. BenchError for an answer that is not good."""
    with connected(port) as connection:
        for number in range(requests):
            text = PROMPT.format(number)
            said: dict[str, object] = {"messages": [{"role": "user", "content": text}]}
            if variant.path.endswith("responses"):
                said = {"input": text}
            own = {name: value.format(number) for name, value in variant.headers.items()}
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **own}
            connection.request("POST", variant.path, json.dumps({"model": "sandbox-template", **said}), headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise BenchError(f"{variant.name}: {answer.status} {body[:300].decode(errors='replace')}")


def memory_of(gateway: Process) -> dict[str, tuple[float, float]]:
    """Resident and proportional set in MB of the master and its worker."""
    worker = max(tree(gateway.pid), key=started_of)
    own_mb = pss_mb(worker)
    return {
        "worker": (rss_mb(worker), own_mb),
        "master": (rss_mb(gateway.pid), pss_mb(gateway.pid) - own_mb),
    }


def started_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text[text.rindex(")") + 2 :].split()[19])
    return 0


def rss_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def tables_of(path: Path) -> dict[str, int]:
    """Bytes of each table with its indices."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        return dict(database.execute(PAGES).fetchall())


def report(found: list[tuple[str, Footprint]], empty: Mapping[str, int], requests: int) -> None:
    """Print memory, and bytes a request by what is switched on."""
    first = found[0][1]
    for when, memory in (("idle", first.idle), (f"after {requests} requests", first.busy)):
        shown = [f"{name} {rss:.0f} MB resident, {pss:.0f} MB proportional" for name, (rss, pss) in memory.items()]
        print(f"{when}: {'; '.join(shown)}")
    print("\n| Switched on | Bytes a request | Of these |\n|---|---|---|")
    for name, footprint in found:
        added = {table: size - empty.get(table, 0) for table, size in footprint.tables.items()}
        parts = sorted(
            ((size // requests, table) for table, size in added.items() if size >= 8 * requests), reverse=True
        )
        total = sum(added.values()) // requests
        print(f"| {name} | {total:,} | {', '.join(f'{table} {size:,}' for size, table in parts)} |")


if __name__ == "__main__":
    sys.exit(main())
