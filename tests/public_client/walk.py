"""The published command-line client, unchanged, through all of its commands against a gateway under gunicorn.

Run it with `make public-client`; it needs node 20 or later, npm and a package registry. Prints a line for each
command and exits 1 when one of them did not do what it should.
"""

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from support.gateways import GatewayProcess  # noqa: E402

CLIENT = "@llmgateway/cli@1.11.0"
EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')
PAGE = re.compile(r"https?://\S+/console/device\S*")
TOKEN = re.compile(r"llmgtwy_[A-Za-z0-9_-]{40}")
PATIENCE_S = 60
SKILL = "---\nname: code-review\ndescription: Reviews code.\n---\n# Review\n"


class Failed(Exception):
    """A command did something else than expected; the text describes it."""


class Walk:
    """The client in a separate folder, configured for one gateway."""

    def __init__(self, folder: Path, gateway: GatewayProcess) -> None:
        self.folder, self.gateway = folder, gateway
        self.program = folder / "client" / "node_modules" / ".bin" / "llmgateway"
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "NO_COLOR": "1",
            "LLMGATEWAY_CONFIG_DIR": str(folder / "config"),
            # Only the base address: the client names its vendor's dashboard, or http://localhost:3002, as the origin.
            "LLMGATEWAY_API_URL": gateway.address,
        }
        self.failures = 0

    def install(self) -> None:
        """Install the client from the registry and a coding agent that only prints its input."""
        for name in ("client", "home", "bin", "work"):
            (self.folder / name).mkdir()
        agent = self.folder / "bin" / "claude"
        agent.write_text('#!/bin/sh\necho "agent at $ANTHROPIC_BASE_URL: $*"\nexit 7\n')
        agent.chmod(0o755)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(self.folder / "client"), CLIENT]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def run(self, *arguments: str, code: int = 0, key: str = "") -> str:
        """The output of a command that has to end with `code`."""
        extra = {"LLMGATEWAY_API_KEY": key} if key else {}
        done = subprocess.run(
            [str(self.program), *arguments],
            cwd=self.folder / "work",
            env=self.environment | extra,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        output = done.stdout + done.stderr
        if done.returncode != code:
            raise Failed(f"exit {done.returncode} instead of {code}: {output.strip()[-600:]}")
        return output

    def json(self, *arguments: str) -> Any:
        """The decoded output of a command with --json."""
        output = self.run(*arguments, "--json")
        return json.loads(output[min(i for i in (output.find("["), output.find("{")) if i >= 0) :])

    def typed(self, answers: tuple[str, ...], *arguments: str) -> str:
        """Return the output of a command at a terminal, into which `answers` are typed one after the other."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder / "work")
            os.execve(str(self.program), [str(self.program), *arguments], {**self.environment, "TERM": "xterm"})
        waiting = list(answers)
        output, until = b"", time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            readable, _, _ = select.select([terminal], [], [], 1.0)
            if not readable:
                if waiting:
                    os.write(terminal, waiting.pop(0).encode() + b"\r")
                continue
            try:
                chunk = os.read(terminal, 4096)
            except OSError:
                break
            if not chunk:
                break
            output += chunk
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        if os.waitstatus_to_exitcode(status):
            raise Failed(output.decode(errors="replace")[-600:])
        return output.decode(errors="replace")

    def step(self, name: str, work: Callable[[], object]) -> Any:
        """Do `work` and print how it went."""
        began = time.monotonic()
        try:
            found = work()
        except (Failed, AssertionError, json.JSONDecodeError, subprocess.TimeoutExpired, KeyError) as error:
            self.failures += 1
            print(f"FAILED {name}: {type(error).__name__} {error}", flush=True)
            return None
        print(f"ok     {name} ({time.monotonic() - began:.1f} s)", flush=True)
        return found


def expect(text: str, *parts: str) -> str:
    """`text`, which has to hold all of `parts`."""
    for part in parts:
        if part not in text:
            raise Failed(f"{part!r} is not in: {text.strip()[-600:]}")
    return text


def approve(url: str, decision: str) -> None:
    """Do a person's steps in the browser: sign in, compare the code, press a button."""
    browser = requests.Session()
    login = browser.get(url)
    own = {"Origin": url.split("/console")[0]}
    form = dict(FIELD.findall(login.text)) | {"email": EMAIL, "password": PASSWORD}
    page = browser.post(login.url.split("?")[0], data=form, headers=own)
    form = dict(FIELD.findall(page.text.split("<button", 1)[0])) | {"decision": decision}
    answer = browser.post(url.split("?")[0], data=form, headers=own)
    if answer.status_code != 200:
        raise Failed(f"the page answered {answer.status_code}: {answer.text[-400:]}")


def device_login(walk: Walk, decision: str, code: int) -> str:
    """`auth login --no-browser`, decided by a person in the pages."""
    # The client refuses pages of another dashboard than the one it knows, which is its vendor's without this option.
    command = [str(walk.program), "auth", "login", "--no-browser", "--dashboard-url", walk.gateway.address]
    process = subprocess.Popen(
        command, env=walk.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = b""
    assert process.stdout is not None
    while not (found := PAGE.search(output.decode(errors="replace"))) and (prompt_line := process.stdout.readline()):
        output += prompt_line
    if not found:
        raise Failed(output.decode(errors="replace"))
    approve(found[0], decision)
    rest, _ = process.communicate(timeout=PATIENCE_S)
    text = (output + rest).decode(errors="replace")
    if process.returncode != code:
        raise Failed(f"exit {process.returncode} instead of {code}: {text[-600:]}")
    return text


def walk_sign_in(walk: Walk) -> None:
    """All three ways to sign in, and out again."""
    walk.step("orgs list without a session", lambda: expect(walk.run("orgs", "list", code=1), "Not signed in"))
    walk.step("auth login, denied in the browser", lambda: device_login(walk, "deny", 1))
    walk.step("auth login, approved", lambda: expect(device_login(walk, "approve", 0), f"Signed in as {EMAIL}"))
    walk.step("auth whoami", lambda: expect(walk.run("auth", "whoami"), EMAIL))
    walk.step("auth logout", lambda: expect(walk.run("auth", "logout"), "Logged out"))
    (walk.folder / "config" / "config.json").unlink()  # the stored address of the dashboard
    walk.step("auth whoami after it", lambda: walk.run("auth", "whoami", code=1))
    arguments = ("auth", "login", "--email", EMAIL)
    walk.step("auth login --email", lambda: expect(walk.typed((PASSWORD,), *arguments), "Signed in as"))
    walk.step("auth status", lambda: expect(walk.run("auth", "status"), f"signed in as {EMAIL}"))


def walk_places(walk: Walk) -> tuple[str, str]:
    """Organizations, projects and credits; ids of the first ones."""
    organization = walk.step("orgs list --json", lambda: walk.json("orgs", "list")[0])["id"]
    walk.step("orgs list", lambda: expect(walk.run("orgs", "list"), "Default", organization))
    project = walk.step("projects list --json", lambda: walk.json("projects", "list")[0])["id"]
    walk.step("projects list -o", lambda: expect(walk.run("projects", "list", "-o", organization), project))
    walk.step("orgs use", lambda: walk.run("orgs", "use", organization))
    walk.step("projects use", lambda: walk.run("projects", "use", project))
    walk.step("credits", lambda: expect(walk.run("credits"), "$100.00"))
    walk.step("credits --json", lambda: walk.json("credits", "-o", organization)[0]["credits"])
    return organization, project


def walk_keys(walk: Walk, project: str) -> str:
    """A key's whole life; the id and token of one that stays."""
    limits = ("--limit", "50", "--period-limit", "10", "--period", "1d", "-e", "30d")
    created = walk.step("keys create --json", lambda: walk.json("keys", "create", "-d", "CI", "-p", project, *limits))
    ident, token = created["id"], created["token"]
    plain = ("keys", "create", "-d", "Plain")
    output = walk.step("keys create", lambda: expect(walk.run(*plain), "llmgtwy_", "will not be shown again"))
    walk.step("the new token works", lambda: check_key(walk, TOKEN.search(output)[0], 200))
    walk.step("keys list", lambda: expect(walk.run("keys", "list"), ident, "CI", "$50.00"))
    walk.step("keys list --all --json", lambda: walk.json("keys", "list", "--all", "-p", project)[0]["id"])
    walk.step("keys update --deactivate", lambda: expect(walk.run("keys", "update", ident, "--deactivate"), "inactive"))
    walk.step("the token is refused", lambda: check_key(walk, token, 401))
    again = ("keys", "update", ident, "--activate", "-e", "2099-01-01")
    walk.step("keys update --activate -e", lambda: expect(walk.run(*again), "active"))
    walk.step("the token works again", lambda: check_key(walk, token, 200))
    walk.step("keys limit", lambda: expect(walk.run("keys", "limit", ident, "-l", "49.99"), "$49.99"))
    weekly = ("budget", "set", ident, "--period-limit", "5", "--period", "2w")
    walk.step("budget set", lambda: expect(walk.run(*weekly), "2 week"))
    walk.step("budget get", lambda: expect(walk.run("budget", "get", ident), "$49.99"))
    walk.step("budget get --json", lambda: walk.json("budget", "get", ident, "-p", project)["periodUsageLimit"])
    walk.step("budget set --clear", lambda: expect(walk.run("budget", "set", ident, "--clear"), "not set"))
    rolled = walk.step("keys roll", lambda: expect(walk.run("keys", "roll", ident, "-y"), "llmgtwy_"))
    walk.step("the old token is dead", lambda: check_key(walk, token, 401))
    walk.step("the rolled token works", lambda: check_key(walk, TOKEN.search(rolled)[0], 200))
    walk.step("keys delete", lambda: expect(walk.run("keys", "delete", ident, "-y"), "deleted"))
    walk.step("its token is dead", lambda: check_key(walk, TOKEN.search(rolled)[0], 401))
    walk.step("keys roll after it", lambda: expect(walk.run("keys", "roll", ident, "-y", code=1), "no API key"))
    return ident


def check_key(walk: Walk, token: str, status: int) -> None:
    answer = requests.get(f"{walk.gateway.url}/key", headers={"Authorization": f"Bearer {token}"}, timeout=10)
    assert answer.status_code == status, answer.text


def wait_for_statistics(walk: Walk) -> None:
    """They lag behind the requests, by a minute at the most."""
    for _ in range(120):
        if sum(row["requestCount"] for row in walk.json("usage", "-r", "24h")["activity"]) == 2:
            return
        time.sleep(0.5)
    raise AssertionError("two requests are not among the statistics after a minute")


def walk_usage(walk: Walk, organization: str, project: str) -> None:
    """Two calls of a model, then every way to look at them."""
    headers = {"Authorization": f"Bearer {walk.gateway.key}", "x-source": "public-client"}
    body = {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}]}
    for _ in range(2):
        requests.post(f"{walk.gateway.url}/chat/completions", json=body, headers=headers, timeout=30).raise_for_status()
    wait_for_statistics(walk)

    def count(*arguments: str) -> None:
        rows = walk.json("usage", *arguments)["activity"]
        assert sum(row["requestCount"] for row in rows) == 2, rows

    today = time.strftime("%Y-%m-%d", time.gmtime())
    walk.step("usage", lambda: expect(walk.run("usage"), "Usage"))
    for arguments in (("-r", "1h"), ("-r", "24h"), ("-r", "365d"), ("--days", "3"), ("--from", today, "--to", today)):
        walk.step(f"usage {' '.join(arguments)} --json", lambda arguments=arguments: count(*arguments))
    walk.step("usage --by model", lambda: expect(walk.run("usage", "--by", "model"), "sandbox"))
    walk.step("usage --by key", lambda: expect(walk.run("usage", "--by", "key"), "First key"))
    walk.step("usage -o", lambda: expect(walk.run("usage", "-o", organization), "TOTAL"))
    walk.step("usage sources", lambda: expect(walk.run("usage", "sources", "-p", project), "public-client"))
    walk.step("usage sources --json", lambda: walk.json("usage", "sources", "-r", "30d")[0]["lastUsedAt"])


def walk_rest(walk: Walk, organization: str) -> None:
    """Skills, launching, and what needs no gateway."""
    skill = walk.folder / "SKILL.md"
    skill.write_text(SKILL)
    walk.step("skills publish", lambda: expect(walk.run("skills", "publish", str(skill)), "code-review"))
    walk.step("skills list --json", lambda: walk.json("skills", "list", "--org", organization)[0]["enabled"])
    walk.step("skills show", lambda: expect(walk.run("skills", "show", "code-review"), "# Review"))
    walk.step("skills add", lambda: expect(walk.run("skills", "add", "code-review", "--agent", "claude"), "Installed"))
    key, address = walk.gateway.key, walk.gateway.address
    launch = ("launch", "--gateway-url", address, "--check-key", "claude", "--continue")
    walk.step("launch", lambda: expect(walk.run(*launch, code=7, key=key), f"agent at {address}", "--continue"))
    wrong = "llmgtwy_" + "x" * 40
    walk.step("launch with a bad key", lambda: walk.run(*launch, code=1, key=wrong))
    dry = ("launch", "--dry-run", "codex")
    walk.step("launch --dry-run", lambda: expect(walk.run(*dry, key=key), "LLMGATEWAY_API_KEY"))
    walk.step("launch --list", lambda: expect(walk.run("launch", "--list"), "claude"))
    walk.step("configure claude", lambda: walk.run("configure", "claude", "--project", key=key))
    walk.step("configure opencode", lambda: walk.run("configure", "opencode", key=key))
    walk.step("agents list", lambda: walk.json("agents", "list")[0])
    walk.step("list --json", lambda: walk.json("list")[0]["name"])
    walk.step("models --json", lambda: walk.json("models", "-s", "gpt"))
    walk.step("add tool", lambda: walk.run("add", "tool", "weather"))
    (walk.folder / "work" / "package.json").write_text('{"name": "work"}')
    walk.step("upgrade --check", lambda: walk.run("upgrade", "--check"))
    walk.step("auth logout", lambda: expect(walk.run("auth", "logout"), "Logged out"))
    walk.step("keys list after it", lambda: expect(walk.run("keys", "list", code=1), "Not signed in"))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gateway = GatewayProcess(folder / "data", 2, GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
        walk = Walk(folder, gateway)
        walk.install()
        try:
            gateway.start()
            walk_sign_in(walk)
            organization, project = walk_places(walk)
            walk_keys(walk, project)
            walk_usage(walk, organization, project)
            walk_rest(walk, organization)
        finally:
            gateway.stop()
    print(f"{walk.failures} of the commands failed" if walk.failures else "All commands did what they should.")
    return 1 if walk.failures else 0


if __name__ == "__main__":
    sys.exit(main())
