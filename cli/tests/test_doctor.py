"""`doctor`: it finds each fault, and names its remedy."""

import json
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_agents import FakeAgents, write_custom_agents
from harness.stub_service import HEALTHY, StubService

Document = dict[str, Any]
SERVICE = {"GET /": (200, HEALTHY), "GET /v1/key": (200, {"data": {"label": "CI", "usage": "1", "limit": None}})}


@pytest.fixture
def user(account: Account, client: Client, tmp_path: Path) -> Client:
    """A signed-in user with a key and no agents."""
    client.environment |= {"LLMGATEWAY_API_KEY": account.key, "PATH": FakeAgents(tmp_path / "programs").path}
    client.folder.chmod(0o700)
    (client.folder / "config.json").chmod(0o600)
    return client


def diagnose(client: Client, code: int | None = 0, **environment: str) -> list[Document]:
    """Return the findings that are not ok."""
    document = client.run("doctor", "--json", code=code, **environment).document
    findings: list[Document] = document["findings"]
    assert set(document) == {"findings", "errors", "warnings"}
    assert document["errors"] == sum(finding["status"] == "error" for finding in findings)
    assert all(finding["remedy"] for finding in findings if finding["status"] != "ok"), findings
    return [finding for finding in findings if finding["status"] != "ok"]


def only(findings: list[Document]) -> tuple[str, str, str]:
    """Return check, status and message of the only finding."""
    assert len(findings) == 1, findings
    return findings[0]["check"], findings[0]["status"], findings[0]["message"]


def test_a_sound_set_up_has_no_findings(user: Client, account: Account) -> None:
    assert diagnose(user) == []
    text = user.run("doctor").stdout
    for part in (
        f"A gateway answers at {account.address}",
        "is valid and has used $0.00",
        f"Signed in as {account.email}",
        *(f"{service}: {account.address}" for service in ("management API", "pages", "models")),
    ):
        assert part in text
    assert account.key not in text


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_the_report_fits_the_terminal(columns: int, plain: bool, user: Client) -> None:
    environment = {"NO_COLOR": "1"} if plain else {}
    with user.terminal("doctor", columns=columns, LLMGATEWAY_API_KEY="", **environment) as terminal:
        text = terminal.end()
    assert ("\x1b[" in terminal.output) is not plain
    assert "warning key" in text and "remedy:" in text and "No errors; warnings: 1." in text
    assert all(len(line) <= max(columns, 80) for line in text.splitlines())


def test_the_exit_code_is_1_after_an_error(user: Client) -> None:
    finished = user.run("doctor", code=1, LLMGATEWAY_API_KEY="llmgtwy_wrong")
    assert "found an error" in finished.stderr and "error key" in finished.stdout


# The configuration and the addresses


@pytest.mark.parametrize("text", ["{", "[]", '{"apiKey": 1}'])
def test_a_damaged_configuration_is_found(text: str, user: Client) -> None:
    (user.folder / "config.json").write_text(text)
    check, status, message = only(diagnose(user, code=1))
    assert (check, status) == ("configuration", "error") and "config.json" in message


def test_damaged_own_agents_are_found(user: Client) -> None:
    write_custom_agents(user.folder, {"id": "mine"})
    check, status, message = only(diagnose(user, code=1))
    assert (check, status) == ("configuration", "error") and "Agent 1" in message


@pytest.mark.parametrize("name", ["", "config.json"])
def test_secrets_that_others_can_read_are_found(name: str, user: Client) -> None:
    path = user.folder / name
    path.chmod(0o755)
    findings = diagnose(user)
    assert only(findings)[:2] == ("configuration", "warning")
    assert str(path) in findings[0]["message"] and findings[0]["remedy"].startswith("chmod ")


@pytest.mark.parametrize("variable", ["LLMGATEWAY_API_URL", "LLMGATEWAY_ORIGIN_URL", "LLMGATEWAY_GATEWAY_URL"])
def test_an_unsafe_address_is_found(variable: str, user: Client) -> None:
    findings = diagnose(user, code=1, **{variable: "http://llm.example"})
    assert (
        all(finding["check"] == "address" and "is not encrypted" in finding["message"] for finding in findings)
        and findings
    )


def test_a_proxy_for_this_machine_is_found(user: Client) -> None:
    (finding,) = diagnose(user, HTTP_PROXY="http://127.0.0.1:9")
    assert finding["check"] == "proxy" and "NO_PROXY" in finding["remedy"]
    assert diagnose(user, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="127.0.0.1") == []


@pytest.mark.parametrize("variable", ["LLMGATEWAY_API_URL", "LLMGATEWAY_GATEWAY_URL"])
def test_a_proxy_for_one_of_the_addresses_is_found(variable: str, user: Client, account: Account) -> None:
    addresses = dict.fromkeys(("LLMGATEWAY_API_URL", "LLMGATEWAY_GATEWAY_URL"), account.address)
    addresses[variable] = account.address.replace("127.0.0.1", "localhost")
    findings = diagnose(user, code=None, **addresses, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="127.0.0.1")
    assert [finding["remedy"] for finding in findings if finding["check"] == "proxy"] == ["Add localhost to NO_PROXY."]


# The service


def test_a_service_that_does_not_answer_is_found(user: Client) -> None:
    check, status, message = only(diagnose(user, code=1, LLMGATEWAY_API_URL="http://127.0.0.1:9"))
    assert (check, status) == ("service", "error") and "No service answers" in message


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {"hello": "world"}), "it is no gateway of this kind"),
        ((200, b"<html><title>Sign in</title></html>"), "Sign in"),
        ((200, b"plain"), "cannot be understood"),
        ((302, {}), "redirects"),
        ((500, {"error": {"message": "Broken."}}), "Broken."),
    ],
)
def test_another_service_is_found(answer: tuple[int, Any], message: str, user: Client) -> None:
    with StubService({"GET /": answer}) as service:
        finding = only(diagnose(user, code=1, LLMGATEWAY_API_URL=service.address))
    assert finding[:2] == ("service", "error") and message in finding[2]


def test_a_management_api_that_does_not_answer_is_found(user: Client, account: Account) -> None:
    separate = {"LLMGATEWAY_GATEWAY_URL": account.address, "LLMGATEWAY_API_URL": "http://127.0.0.1:9"}
    findings = diagnose(user, code=1, **separate)
    assert [(finding["check"], finding["status"]) for finding in findings] == [
        ("service", "error"),
        ("session", "error"),
    ]


@pytest.mark.parametrize(("shift_s", "direction"), [(-600, "ahead of"), (600, "behind")])
def test_a_wrong_clock_is_found(shift_s: int, direction: str, signed_out: Client) -> None:
    moment = formatdate(time.time() + shift_s, usegmt=True)
    with StubService(dict(SERVICE), {"Date": moment}) as service:
        findings = diagnose(signed_out, code=1, LLMGATEWAY_API_URL=service.address, LLMGATEWAY_API_KEY="k")
    assert findings[0]["check"] == "clock" and direction in findings[0]["message"]


def test_a_service_of_another_major_version_is_found(signed_out: Client) -> None:
    answers = SERVICE | {"GET /": (200, HEALTHY | {"version": "7.1.0"})}
    with StubService(answers) as service:
        findings = diagnose(signed_out, LLMGATEWAY_API_URL=service.address, LLMGATEWAY_API_KEY="k")
    assert findings[-1]["check"] == "versions" and "7.1.0" in findings[-1]["message"]


# Key and session


def test_a_missing_key_is_found(user: Client) -> None:
    assert only(diagnose(user, LLMGATEWAY_API_KEY=""))[:2] == ("key", "warning")


def test_a_wrong_key_is_found(user: Client) -> None:
    check, status, message = only(diagnose(user, code=1, LLMGATEWAY_API_KEY="llmgtwy_wrong"))
    assert (check, status) == ("key", "error") and "Request id" in message and "llmgtwy_wrong" not in message


def test_a_key_that_hides_the_stored_one_is_found(user: Client) -> None:
    user.configure(apiKey="llmgtwy_other")
    check, status, message = only(diagnose(user))
    assert (check, status) == ("key", "warning") and "LLMGATEWAY_API_KEY is used" in message


def test_a_spent_key_is_found(signed_out: Client) -> None:
    answers = SERVICE | {"GET /v1/key": (200, {"data": {"label": "CI", "usage": "5", "limit": "5"}})}
    with StubService(answers) as service:
        findings = diagnose(signed_out, code=1, LLMGATEWAY_API_URL=service.address, LLMGATEWAY_API_KEY="k")
    assert findings[0]["check"] == "key" and "has used its limit of $5.00" in findings[0]["message"]


def test_a_service_that_does_not_describe_keys_is_no_fault(signed_out: Client) -> None:
    with StubService({"GET /": (200, HEALTHY)}) as service:
        findings = diagnose(signed_out, LLMGATEWAY_API_URL=service.address, LLMGATEWAY_API_KEY="k")
    assert [finding["check"] for finding in findings] == ["session"]


def test_a_missing_sign_in_is_found(user: Client) -> None:
    (user.folder / "config.json").unlink()
    assert only(diagnose(user))[:2] == ("session", "warning")


@pytest.mark.parametrize(
    "members",
    [{"sessionToken": "expired"}, {"sessionApiUrl": "https://other.example"}],
    ids=["expired", "of another service"],
)
def test_a_useless_session_is_found(members: dict[str, str], user: Client) -> None:
    user.configure(**members)
    (user.folder / "config.json").chmod(0o600)
    check, status, _ = only(diagnose(user, code=1))
    assert (check, status) == ("session", "error")


def test_a_session_that_the_service_does_not_know_is_found(user: Client) -> None:
    with StubService(SERVICE | {"GET /auth/get-session": (200, None)}) as service:
        user.configure(sessionApiUrl=service.address)
        (user.folder / "config.json").chmod(0o600)
        finding = only(diagnose(user, code=1, LLMGATEWAY_API_URL=service.address))
    assert finding == ("session", "error", "Your session has expired or was ended.")


# Agents


def test_old_agents_and_missing_own_ones_are_found(user: Client, tmp_path: Path) -> None:
    agents = FakeAgents(tmp_path / "programs")
    agents.install("claude", version="1.0.0")
    agents.install("aider", version="unknown")
    write(tmp_path / "programs" / "goose", "#!/no/such/interpreter\n").chmod(0o755)
    write_custom_agents(user.folder, {"id": "mine", "label": "Mine", "command": "no-such-program"})
    findings = diagnose(user, code=1)
    assert [(finding["check"], finding["status"]) for finding in findings] == [
        ("agents", "error"),
        ("agents", "warning"),
    ]
    assert "npm install -g" in findings[0]["remedy"]
    text = user.run("doctor", code=1).stdout
    assert "aider (unknown version)" in text and "goose (unknown version)" in text


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("project", [False, True])
def test_settings_of_claude_that_do_not_fit_are_found(project: bool, user: Client, account: Account) -> None:
    name = "settings.local.json" if project else "settings.json"
    path = user.home / ".claude" / name
    variables = {"ANTHROPIC_BASE_URL": account.address, "ANTHROPIC_AUTH_TOKEN": account.key}
    write(path, {"env": variables})
    assert diagnose(user) == []
    write(path, {"env": variables | {"ANTHROPIC_BASE_URL": "https://other.example"}})
    assert "names https://other.example" in only(diagnose(user))[2]
    write(path, {"env": variables | {"ANTHROPIC_AUTH_TOKEN": "llmgtwy_other"}})
    assert "has another API key" in only(diagnose(user))[2]
    write(path, {"env": variables}).chmod(0o644)
    assert only(diagnose(user, code=1))[:2] == ("agent settings", "error")
    write(path, "{")
    assert only(diagnose(user, code=1))[:2] == ("agent settings", "error")
    write(path, {"theme": "dark"})
    assert diagnose(user) == []


@pytest.mark.parametrize("place", [".config/opencode/opencode.json", "opencode.json"])
def test_settings_of_opencode_that_do_not_fit_are_found(place: str, user: Client, account: Account) -> None:
    path = user.home / place
    user.run("configure", "opencode", *(["--project"] if place == "opencode.json" else []))
    assert diagnose(user) == []
    assert "is not set" in diagnose(user, LLMGATEWAY_API_KEY="")[-1]["message"]
    settings = json.loads(path.read_text())
    settings["provider"]["llmgateway"]["options"]["baseURL"] = "https://other.example/v1"
    write(path, settings)
    assert "names https://other.example" in only(diagnose(user))[2]
    del settings["provider"]["llmgateway"]["options"]["baseURL"]
    write(path, settings)
    assert "names no address" in only(diagnose(user))[2]
    write(path, {"theme": "dark"})
    assert diagnose(user) == []


def test_configure_is_the_remedy(user: Client) -> None:
    write(user.home / ".claude" / "settings.json", {"env": {"ANTHROPIC_BASE_URL": "https://other.example"}})
    assert "configure claude" in diagnose(user)[0]["remedy"]
    user.run("configure", "claude")
    assert diagnose(user) == []
