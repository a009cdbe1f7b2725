"""MCP's published clients and its conformance suite, from npm, against a gateway of two workers."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import gevent
import httpx
import pytest
from mcp_clients.packages import BRIDGED, CACHE, CONFORMANCE, GENERATIONS, INSPECTOR, NEXT, REMOTE
from support import npm
from support.gateways import GatewayProcess
from support.oauth import Person
from support.signed_in_owner import EMAIL

HERE = Path(__file__).resolve().parent
RUN_S = 300
TALK = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Good day"}]}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get-account", {}),
    ("get-usage", {}),
    ("get-usage-breakdown", {"group_by": "model"}),
    ("chat", TALK),
    ("generate-image", {"prompt": "A boat", "n": 2}),
    ("generate-alt-image", {"prompt": "A boat", "aspect_ratio": "16:9"}),
    ("list-models", {"limit": 3}),
    ("list-image-models", {}),
]
TOOLS = [name for name, _ in CALLS]


def run(home: Path, *command: object, good: tuple[int, ...] = (0,), **environment: str) -> str:
    """Run a program, which must succeed, and return its output."""
    own = {"PATH": os.environ["PATH"], "HOME": str(home), **environment}
    done = subprocess.run(
        [str(one) for one in command], cwd=home, capture_output=True, text=True, timeout=RUN_S, env=own
    )
    assert done.returncode in good, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check(result: dict[str, Any]) -> None:
    """The eight tools were listed, and each was called well."""
    assert result["server"] == "llmgateway" and result["tools"] == TOOLS
    assert [bool(result.get("isError")) for result in result["results"]] == [False] * 8
    assert "Good day" in result["results"][3]["content"][0]["text"]
    assert result["results"][4]["content"][0]["type"] == "image"


Given = dict[str, Any]


@pytest.mark.parametrize(("folder", "packages", "options", "version"), GENERATIONS)
def test_the_typescript_client_calls_every_tool(
    node: Path, gateway: GatewayProcess, tmp_path: Path, folder: str, packages: Given, options: Given, version: str
) -> None:
    npm.install(CACHE / folder, packages)
    drive(node, gateway, tmp_path, CACHE / folder, "http", options, version)


@pytest.mark.parametrize(("folder", "packages", "options", "version"), BRIDGED)
def test_the_typescript_client_calls_every_tool_over_the_transport_of_before(
    node: Path, gateway: GatewayProcess, tmp_path: Path, folder: str, packages: Given, options: Given, version: str
) -> None:
    npm.install(CACHE / folder, packages)
    drive(node, gateway, tmp_path, CACHE / folder, "sse", options, version)


def drive(
    node: Path, gateway: GatewayProcess, home: Path, modules: Path, transport: str, options: Given, version: str
) -> None:
    arguments = [modules, transport, f"{gateway.address}/mcp", gateway.key, json.dumps(CALLS), json.dumps(options)]
    result = json.loads(run(home, node, HERE / "drive.mjs", *arguments))
    check(result)
    assert result.get("version", "") == version


@pytest.mark.parametrize("transport", ["http-only", "sse-only"])
def test_mcp_remote_lists_and_calls_every_tool(
    node: Path, gateway: GatewayProcess, tmp_path: Path, transport: str
) -> None:
    program = npm.install(CACHE / "remote", REMOTE) / "mcp-remote" / "dist" / "proxy.js"
    command = [node, program, f"{gateway.address}/mcp", "--allow-http", "--transport", transport]
    command += ["--header", f"Authorization: Bearer {gateway.key}"]
    process: Any = subprocess.Popen(
        [str(one) for one in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    try:
        with gevent.Timeout(RUN_S):
            check(converse(process))
    finally:
        process.kill()
        process.wait()


def converse(process: Any) -> dict[str, Any]:
    """Talk with a server over stdin and stdout, line by line, and return its answers."""

    def request(number: int, method: str, **params: Any) -> Any:
        say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while True:
            answer = json.loads(process.stdout.readline())
            if answer.get("id") == number:
                return answer["result"]

    def say(message: dict[str, Any]) -> None:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    initialized = request(1, "initialize", **hello)
    say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    tools = [tool["name"] for tool in request(2, "tools/list")["tools"]]
    results = [
        request(number, "tools/call", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(CALLS, 3)
    ]
    return {"server": initialized["serverInfo"]["name"], "tools": tools, "results": results}


def test_the_inspector_lists_and_calls_every_tool(node: Path, gateway: GatewayProcess, tmp_path: Path) -> None:
    package = npm.install(CACHE / "inspector", INSPECTOR) / "@modelcontextprotocol" / "inspector"
    program = package / "clients" / "launcher" / "build" / "index.js"
    shared = ["--cli", f"{gateway.address}/mcp", "--transport", "http"]
    key = ["--header", f"Authorization: Bearer {gateway.key}"]

    def inspect(*more: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(run(tmp_path, node, program, *shared, *more, *key))
        return answer

    assert [tool["name"] for tool in inspect("--method", "tools/list")["tools"]] == TOOLS
    for name, arguments in CALLS:
        pairs = [f"{key}={json.dumps(value) if isinstance(value, list) else value}" for key, value in arguments.items()]
        called = inspect("--method", "tools/call", "--tool-name", name, *(["--tool-arg", *pairs] if pairs else []))
        assert not called.get("isError"), called


def baseline(folder: Path, *names: str) -> Path:
    """The scenarios of these files in one."""
    lines = [line for name in names for line in (HERE / name).read_text().splitlines() if line.startswith("  - ")]
    path = folder / "baseline.yml"
    path.write_text("server:\n" + "\n".join(lines) + "\n")
    return path


def conform(node: Path, folder: Path, url: str, packages: dict[str, str], *more: object) -> str:
    place = CACHE / f"conformance-{packages['@modelcontextprotocol/conformance']}"
    program = npm.install(place, packages) / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return run(folder, node, program, "server", "--url", url, "-o", folder / "results", *more)


def test_the_conformance_suite_finds_what_its_baseline_says_and_no_more(node: Path, door: Any, tmp_path: Path) -> None:
    known = baseline(tmp_path, "baseline.yml", "baseline_product.yml")
    conform(node, tmp_path, f"{door.address}/mcp", CONFORMANCE, "--expected-failures", known)


def test_the_dispatcher_passes_the_scenarios_that_want_other_tools(node: Path, door: Any, tmp_path: Path) -> None:
    known = baseline(tmp_path, "baseline.yml")
    url = f"{door.address}/conformance/mcp"
    conform(node, tmp_path, url, CONFORMANCE, "--expected-failures", known)
    conform(node, tmp_path, url, CONFORMANCE, "--scenario", "json-schema-2020-12")


def test_the_authorization_server_conforms(node: Path, gateway: GatewayProcess, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    redirect = f"http://127.0.0.1:{port}/callback"
    metadata = {"client_name": "Conformance", "redirect_uris": [redirect], "token_endpoint_auth_method": "none"}
    client = httpx.post(f"{gateway.address}/oauth/register", json=metadata, timeout=60).json()["client_id"]
    place = CACHE / f"conformance-{NEXT['@modelcontextprotocol/conformance']}"
    program = npm.install(place, NEXT) / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [node, program, "authorization", "--url", gateway.address, "--client-id", client, "--port", port]
    command += ["--resource", f"{gateway.address}/mcp"]
    process: Any = subprocess.Popen(
        [str(one) for one in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    said = b""
    try:
        with gevent.Timeout(RUN_S):
            while output_line := process.stdout.readline():
                said += output_line
                found = re.search(rb"https?://[^\s\"']+/oauth/authorize\?[^\s\"']+", output_line)
                if found:
                    address = Person(gateway.address, EMAIL).decide(found[0].decode())
                    httpx.get(address, timeout=60)
            assert process.wait() == 0, said.decode()[-4000:]
    finally:
        process.kill()
        process.wait()
