"""The time of the command-line client: `python -m bench.client [--rounds 15]`.

Each command runs in a new process, `keys list` against a server in this process that answers at once. Printed are the
median and the fastest wall time, and the median of the CPU time. Ends with status 1 where the fastest run is slower
than the aim: other work on the machine only makes runs slower.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
AIMS_MS = {("--help",): 150.0, ("keys", "list"): 400.0}
KEYS = [
    {"id": f"key_{number:032}", "description": f"Key {number}", "status": "active", "usage": "1.5", "usageLimit": "10"}
    for number in range(20)
]


class Service(BaseHTTPRequestHandler):
    """Answers every request with a list of keys."""

    def do_GET(self) -> None:
        body = json.dumps({"apiKeys": KEYS}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused: object) -> None:
        """Log nothing."""


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every command reaches its aim."""
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command (15)")
    options = parser.parse_args(arguments)
    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        environment = sign_in(Path(folder), f"http://127.0.0.1:{server.server_port}")
        fastest_ms = {words: measure(words, environment, options.rounds) for words in AIMS_MS}
    server.shutdown()
    return int(any(fastest_ms[words] > aim_ms for words, aim_ms in AIMS_MS.items()))


def sign_in(folder: Path, address: str) -> dict[str, str]:
    """Return the environment of a client with a session at the address."""
    members = {"sessionToken": "session-of-the-bench", "sessionApiUrl": address, "sessionEmail": "bench@localhost"}
    (folder / "config.json").write_text(json.dumps(members))
    own = {"LLMGATEWAY_CONFIG_DIR": str(folder), "LLMGATEWAY_API_URL": address, "PYTHONPATH": str(ROOT / "cli")}
    return {"PATH": os.environ["PATH"], "HOME": str(folder), **own}


def measure(words: tuple[str, ...], environment: dict[str, str], rounds: int) -> float:
    """Print the times of a command and return the fastest in milliseconds."""
    command = [sys.executable, "-m", "llmgateway_cli", *words]
    wall_ms = []
    cpu_ms = []
    for _ in range(rounds + 1):
        used = children_cpu_s()
        began = time.perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        wall_ms.append((time.perf_counter() - began) * 1000)
        cpu_ms.append((children_cpu_s() - used) * 1000)
    # The first run compiles modules.
    wall, cpu = wall_ms[1:], cpu_ms[1:]
    print(
        f"llmgateway {' '.join(words):10} {median(wall):6.0f} ms (fastest {min(wall):.0f}), "
        f"{median(cpu):.0f} ms of CPU (aim: {AIMS_MS[words]:g} ms)"
    )
    return min(wall)


def children_cpu_s() -> float:
    """Return the CPU seconds of all ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
