"""Claude Code signs in to the gateway by itself: device flow, managed settings, models, telemetry and sign-out."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.clients import ACCEPT_EDITS, NOWHERE, RUN_S, Run
from agents.upstreams import PLACES, Job, Model
from fakes.otlp import FakeCollector
from support.gateways import GatewayProcess
from support.oauth import PASSWORD, Person
from support.signed_in_owner import EMAIL, SignedInOwner

Serve = Callable[..., tuple[GatewayProcess, list[Model]]]
WAIT_S = 60
SETTINGS = {
    "env": {
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        "OTEL_LOGS_EXPORT_INTERVAL": "500",
    },
    "permissions": {"deny": ["WebFetch"]},
    "companyAnnouncements": ["Use the gateway. Größe: ünïcode \U0001f680"],
}


class SignedInAgent:
    """Claude Code with a separate home folder."""

    def __init__(self, program: Path, work: Path, gateway: str, model: str) -> None:
        self.program = program
        self.work = work
        self.home = work.parent / "home"
        self.home.mkdir(exist_ok=True)
        self.folder = self.home / ".claude"
        self.folder.mkdir(exist_ok=True)
        login = {"forceLoginMethod": "gateway", "forceLoginGatewayUrl": gateway}
        (self.folder / "settings.json").write_text(json.dumps(login))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            "DISABLE_AUTOUPDATER": "1",
            "ANTHROPIC_MODEL": model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        }

    def sign_in(self, person: Person) -> list[str]:
        """Run the sign-in as an editor does, with the person's browser; return the states that it reported."""
        command = [str(self.program), "auth", "login", "--gateway-json"]
        states = []
        with subprocess.Popen(
            command, cwd=self.work, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdin is not None
            for output_line in process.stdout:
                report = json.loads(output_line)
                states.append(report["state"])
                assert report["state"] != "error", report
                if report["state"] == "polling":
                    page = person.open(report["browserUrl"])
                    assert report["userCode"] in page.text
                    assert "signed in" in person.submit(page, decision="approve").text
                elif "shown" in report:
                    answer = {"state": report["state"], "shown": report["shown"], "accept": True}
                    process.stdin.write(json.dumps(answer) + "\n")
                    process.stdin.flush()
        assert process.returncode == 0, states
        return states

    def run(self, *arguments: str) -> Run:
        done = subprocess.run(
            [str(self.program), *arguments],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    @property
    def credential(self) -> dict[str, Any]:
        stored = json.loads((self.folder / ".credentials.json").read_text())
        credential: dict[str, Any] = stored["enterpriseGateway"]
        return credential

    def expire(self) -> None:
        """Let the access token look as if it ends in a minute."""
        path = self.folder / ".credentials.json"
        stored = json.loads(path.read_text())
        stored["enterpriseGateway"]["expiresAt"] = int(time.time() * 1000) + 60_000
        path.write_text(json.dumps(stored))


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def status_of(gateway: GatewayProcess, agent: SignedInAgent) -> int:
    web = Person(gateway.address, EMAIL).web
    return web.get(
        f"{gateway.address}/v1/models", headers={"Authorization": f"Bearer {agent.credential['jwt']}"}
    ).status_code


def test_claude_code_signs_in_works_and_is_signed_out(
    programs: dict[str, Path], job: Job, serve: Serve, tmp_path
) -> None:
    where = PLACES["messages"]
    with FakeCollector() as collector:
        environment = {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
        gateway, (model,) = serve(where, **environment)
        owner = SignedInOwner(gateway.address)
        organization = owner("GET", "/orgs")["organizations"][0]["id"]
        owner("PUT", f"/orgs/{organization}/managed-settings", {"settings": SETTINGS})
        agent = SignedInAgent(programs["claude"], Path(job.folder), gateway.address, where.model)
        person = Person(gateway.address, EMAIL)
        states = agent.sign_in(person)
        assert states[-1] == "done" and "confirm_account" in states
        assert agent.credential["email"] == EMAIL

        run = agent.run("--print", *ACCEPT_EDITS, f"Write the file {job.name} with this text: {job.text}")
        report = f"{run}\n{gateway.log()[-3000:]}"
        assert run.code == 0, report
        assert Path(job.path).read_text().strip() == job.text, report
        assert [call.status for call in model.calls] == [200] * len(model.calls), report
        assert json.loads((agent.folder / "remote-settings.json").read_text()) == SETTINGS
        wait_for(lambda: collector.logs and collector.metrics)
        assert {resource["llmgateway.organization.id"] for resource in collector.agent_resources} == {organization}
        assert {resource["llmgateway.user.email"] for resource in collector.agent_resources} == {EMAIL}
        assert not collector.problems

        # The settings are unchanged, which the client's own checksum finds out.
        before = agent.credential
        agent.expire()
        assert agent.run("--print", "Is it well written?").code == 0
        assert agent.credential["jwt"] != before["jwt"]
        assert agent.credential["idpRefreshToken"] != before["idpRefreshToken"]
        answers = [text for text in gateway.log().splitlines() if "/managed/settings" in text]
        assert any(" 304" in text or '"status":304' in text for text in answers), answers
        assert status_of(gateway, agent) == 200

        token = agent.credential["jwt"]
        assert agent.run("auth", "logout").code == 0
        web = person.web
        assert (
            web.get(f"{gateway.address}/managed/settings", headers={"Authorization": f"Bearer {token}"}).status_code
            == 401
        )
        assert not owner("GET", "/auth/applications")["applications"]


def test_a_revoked_sign_in_stops_claude_code(programs: dict[str, Path], job: Job, serve: Serve) -> None:
    where = PLACES["messages"]
    gateway, (model,) = serve(where, GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    agent = SignedInAgent(programs["claude"], Path(job.folder), gateway.address, where.model)
    agent.sign_in(Person(gateway.address, EMAIL))
    assert agent.run("--print", "Is it well written?").code == 0
    calls = len(model.calls)
    owner = SignedInOwner(gateway.address)
    (application,) = owner("GET", "/auth/applications")["applications"]
    owner("DELETE", f"/auth/applications/{application['id']}")
    run = agent.run("--print", "Is it well written?")
    assert run.code != 0 and len(model.calls) == calls, run
