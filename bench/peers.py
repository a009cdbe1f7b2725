"""The peers of the comparison: their pinned versions, their installation below data/bench, and how each is started.

`python -m bench.peers` installs them from the package registries. A peer that cannot be installed is left out of a run,
which names the reason. Each peer keeps nothing durable and runs on one core, like the gateway.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.processes import TARGET_CORE, BenchError, running, wait_for_port
from bench.targets import KEY, MODEL, ROOT, Starter, Target, clean_environment, wait_until_ready

FOLDER = ROOT / "data" / "bench"
INSTALL_S = 900
# Packages of the Python package index; each peer, and the profiler of `make profile`, has its own environment.
PYTHON_PINS = {
    "litellm": ("litellm[proxy]==1.106.2",),
    "ferrogw": ("ferrogw==1.5.10",),
    "py-spy": ("py-spy==0.4.3",),
}
# Packages of npm by peer, and versions that their dependencies must have: with newer ones each stream is a 500.
NODE_PINS = {"portkey": {"@portkey-ai/gateway": "1.15.2"}}
NODE_OVERRIDES = {"portkey": {"@hono/node-server": "1.13.7", "hono": "4.9.7"}}
UNLIMITED = "1000000"

NGINX = """
daemon off; worker_processes 1; error_log {folder}/nginx-error.log; pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 100000000; tcp_nodelay on;
  upstream mock {{ server 127.0.0.1:{mock}; keepalive 512; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{
    proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }}
}}
"""
LITELLM = """
model_list:
  - model_name: {model}
    litellm_params: {{model: {model}, api_base: "http://127.0.0.1:{mock}/v1", api_key: x}}
general_settings: {{master_key: {key}}}
"""
FERROGW = "strategy: {mode: single}\ntargets: [{virtual_key: openai}]\n"


def install(name: str) -> None:
    """Install a peer or the profiler with its pins, once. BenchError when a registry does not have it."""
    pins = list_pins(name)
    folder = FOLDER / name
    stamp = folder / "pins.json"
    if not pins or (stamp.exists() and json.loads(stamp.read_text()) == pins):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name in PYTHON_PINS:
        run([sys.executable, "-m", "venv", str(folder)], folder)
        run([str(folder / "bin" / "pip"), "install", "--disable-pip-version-check", *PYTHON_PINS[name]], folder)
    else:
        package = {"private": True, "dependencies": NODE_PINS[name], "overrides": NODE_OVERRIDES[name]}
        (folder / "package.json").write_text(json.dumps(package))
        run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    stamp.write_text(json.dumps(pins))


def list_pins(name: str) -> list[str]:
    """Return the pinned packages of a peer; none for nginx, which comes with the system."""
    node = NODE_PINS.get(name, {}) | NODE_OVERRIDES.get(name, {})
    return [*PYTHON_PINS.get(name, ()), *(f"{package}@{version}" for package, version in node.items())]


def describe_peer(name: str) -> list[str]:
    """Return the versions of a peer for the report."""
    if name != "nginx":
        return list_pins(name)
    done = subprocess.run([find_nginx(), "-v"], capture_output=True, text=True)
    return [done.stderr.strip().removeprefix("nginx version: ")]


def run(command: list[str], folder: Path) -> None:
    """Run a step of an installation. Raises BenchError with the last line that it printed."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{Path(command[0]).name} cannot be run: {error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BenchError(lines[-1] if lines else f"{Path(command[0]).name} ended with status {done.returncode}")


def install_available(names: Iterable[str]) -> dict[str, str]:
    """Install the peers among `names` that the machine and the registries have; return why the others are left out."""
    reasons: dict[str, str] = {}
    for name in PEERS.keys() & set(names):
        try:
            if name == "nginx":
                find_nginx()
            else:
                install(name)
        except BenchError as error:
            reasons[name] = str(error)
    return reasons


def find_nginx() -> str:
    """Return the path of nginx, on PATH or beside the interpreter (`make` unpacks it there). Raises BenchError."""
    folders = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", str(Path(sys.executable).parent)))
    binary = shutil.which("nginx", path=folders)
    if not binary:
        raise BenchError("nginx is not installed")
    return binary


@contextlib.contextmanager
def start_nginx(port: int, mock: int, folder: Path) -> Iterator[Target]:
    """nginx as a reverse proxy with kept upstream connections and no buffering: the limit of what a proxy can be."""
    path = folder / "nginx.conf"
    path.write_text(NGINX.format(folder=folder, mock=mock, port=port))
    with running("nginx", [find_nginx(), "-c", str(path), "-p", str(folder)], TARGET_CORE, folder) as process:
        yield Target("nginx", port, process, wait_for_port(process, port))


@contextlib.contextmanager
def start_ferrogw(port: int, mock: int, folder: Path) -> Iterator[Target]:
    """The Go peer on one processor, without its limit of 20 requests a second and without its log of requests."""
    install("ferrogw")
    path = folder / "config.yaml"
    path.write_text(FERROGW)
    environment = clean_environment() | {
        "GOMAXPROCS": "1",
        "PORT": str(port),
        "GATEWAY_CONFIG": str(path),
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{mock}/v1",
        "RATE_LIMIT_RPS": UNLIMITED,
        "RATE_LIMIT_BURST": UNLIMITED,
        "ALLOW_UNAUTHENTICATED_PROXY": "true",
        "FERRO_MODEL_CATALOG_TIMEOUT": "0",
        "LOG_LEVEL": "error",
    }
    command = [str(FOLDER / "ferrogw" / "bin" / "ferrogw"), "serve"]
    with running("ferrogw", command, TARGET_CORE, folder, environment) as process:
        yield Target("ferrogw", port, process, wait_for_port(process, port), model="gpt-4o-mini")


@contextlib.contextmanager
def start_portkey(port: int, mock: int, folder: Path) -> Iterator[Target]:
    """Portkey's gateway on node; the address of the upstream is part of each request."""
    install("portkey")
    script = FOLDER / "portkey" / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    environment = clean_environment() | {"NODE_ENV": "production"}
    command = ["node", str(script), f"--port={port}", "--headless"]
    headers = f"x-portkey-provider: openai\r\nx-portkey-custom-host: http://127.0.0.1:{mock}/v1\r\n"
    with running("portkey", command, TARGET_CORE, folder, environment) as process:
        start_s = wait_for_port(process, port)
        yield Target("portkey", port, process, start_s, model="gpt-4o-mini", headers=headers)


@contextlib.contextmanager
def start_litellm(port: int, mock: int, folder: Path) -> Iterator[Target]:
    """LiteLLM's proxy with one worker and without a database."""
    install("litellm")
    path = folder / "config.yaml"
    path.write_text(LITELLM.format(model=MODEL, mock=mock, key=KEY))
    environment = clean_environment() | {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [str(FOLDER / "litellm" / "bin" / "litellm"), "--config", str(path), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    with running("litellm", command, TARGET_CORE, folder, environment) as process:
        yield Target("litellm", port, process, wait_until_ready(process, port, "/health/liveliness"))


PEERS: dict[str, Starter] = {
    "nginx": start_nginx,
    "ferrogw": start_ferrogw,
    "portkey": start_portkey,
    "litellm": start_litellm,
}


def main() -> int:
    """Install the peers and print the ones that are left out."""
    for name, reason in install_available(PEERS).items():
        print(f"{name} is left out: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
