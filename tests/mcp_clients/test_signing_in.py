"""Published clients from npm sign in by OAuth, knowing nothing but the address; the person decides in a real
Chromium."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import httpx
import pytest
from mcp_clients.packages import CACHE, GENERATIONS, REMOTE
from support import npm
from support.chromium import BROWSER, Chromium
from support.gateways import GatewayProcess
from support.oauth import Person
from support.oauth_client import CALLS as KNOWN
from support.signed_in_owner import EMAIL, PASSWORD

HERE = Path(__file__).resolve().parent
CALLS = [(name, client_name | ({"model": "sandbox-echo"} if name == "chat" else {})) for name, client_name in KNOWN]
RUN_S = 300

Open = Callable[[str], None]


@pytest.fixture
def open_page(gateway: GatewayProcess) -> Iterator[Open]:
    """Opens an address as the owner, allows, and goes where that leads: in Chromium, where one is installed."""
    if BROWSER is None:

        def follow(address: str) -> None:
            httpx.get(Person(gateway.address, EMAIL).decide(address), timeout=60)

        yield follow
        return
    browser = Chromium()

    def allow(address: str) -> None:
        browser.open(address)
        browser.wait_for("!!document.querySelector('#password')")
        browser.run(f"document.querySelector('#email').value = '{EMAIL}'")
        browser.run(f"document.querySelector('#password').value = '{PASSWORD}'")
        browser.run("document.querySelector('form button').click()")
        browser.wait_for("!!document.querySelector('button[value=allow]')")
        browser.run("document.querySelector('button[value=allow]').click()")

    yield allow
    browser.close()


def start(home: Path, *command: object, **pipes: Any) -> Any:
    own = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.Popen([str(one) for one in command], cwd=home, env=own, stdout=subprocess.PIPE, **pipes)


def check(tools: list[str], results: list[Any]) -> None:
    assert sorted(tools) == sorted(name for name, _ in CALLS)
    assert [bool(result.get("isError")) for result in results] == [False] * len(CALLS), results


@pytest.mark.parametrize(("folder", "packages", "options", "version"), GENERATIONS)
def test_the_typescript_client_signs_in_by_itself_and_calls_every_tool(
    node: Path,
    gateway: GatewayProcess,
    open_page: Open,
    tmp_path: Path,
    folder: str,
    packages: dict[str, str],
    options: dict[str, Any],
    version: str,
) -> None:
    npm.install(CACHE / folder, packages)
    arguments = [f"{gateway.address}/mcp", json.dumps(CALLS), json.dumps(options)]
    command = [node, HERE / "sign_in.mjs", CACHE / folder, *arguments]
    process = start(tmp_path, *command, stderr=subprocess.STDOUT)
    said: list[str] = []
    try:
        with gevent.Timeout(RUN_S):
            for output_line in iter(process.stdout.readline, b""):
                said.append(output_line.decode())
                if said[-1].startswith("OPEN "):
                    open_page(said[-1].removeprefix("OPEN ").strip())
            assert process.wait() == 0, "".join(said)[-3000:]
    finally:
        process.kill()
        process.wait()
    result = json.loads(said[-1].removeprefix("DONE "))
    check(result["tools"], result["results"])
    assert result["state"] == "a state" and result["iss"] == gateway.address and result["server"] == "llmgateway"


def test_mcp_remote_signs_in_by_itself_and_calls_every_tool(
    node: Path, gateway: GatewayProcess, open_page: Open, tmp_path: Path
) -> None:
    program = npm.install(CACHE / "remote", REMOTE) / "mcp-remote" / "dist" / "proxy.js"
    command = [node, program, f"{gateway.address}/mcp", "--allow-http", "--transport", "http-only"]
    process = start(tmp_path, *command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    said: list[str] = []

    def watch() -> None:
        for output_line in iter(process.stderr.readline, b""):
            said.append(output_line.decode())
            found = re.search(r"https?://\S+/oauth/authorize\?\S+", said[-1])
            if found:
                open_page(found[0])

    def say(message: dict[str, Any]) -> None:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()

    def request(number: int, method: str, **params: Any) -> Any:
        say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while output_line := process.stdout.readline():
            answer = json.loads(output_line)
            if answer.get("id") == number:
                return answer["result"]
        raise AssertionError("".join(said)[-3000:])

    watching = gevent.spawn(watch)
    try:
        with gevent.Timeout(RUN_S, AssertionError("".join(said)[-3000:])):
            hello = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }
            request(1, "initialize", **hello)
            say({"jsonrpc": "2.0", "method": "notifications/initialized"})
            tools = [tool["name"] for tool in request(2, "tools/list")["tools"]]
            check(tools, [request(number, "tools/call", name=n, arguments=a) for number, (n, a) in enumerate(CALLS, 3)])
    finally:
        process.kill()
        process.wait()
        watching.kill()
