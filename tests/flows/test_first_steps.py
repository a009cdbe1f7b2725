"""The first steps in the console: a provider is connected by its key, a tool sends a request, the team is invited."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.openai import Answer
from support.client_steps import read_clients
from support.first_steps import FirstSteps, first_steps
from support.plain_browser import PlainBrowser

from gateway.accounts.projects import create_project, list_projects
from gateway.catalogue import loader
from gateway.catalogue.environment_credentials import find_providers
from gateway.configuration.settings import Settings

START = "/console/start"
OPENAI_KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyz"
ANTHROPIC_KEY = "sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyz"
DONE = re.compile(r'<li class="card( done)?" id="(\w+)">')


@pytest.fixture
def steps(settings: Callable[..., Settings], tmp_path: Path) -> Iterator[FirstSteps]:
    with first_steps(settings, tmp_path / "catalogue") as found:
        yield found


@pytest.fixture
def owner(steps: FirstSteps) -> PlainBrowser:
    return PlainBrowser(steps.gateway.address, steps.session)


def done_steps(page: str) -> set[str]:
    return {name for done, name in DONE.findall(page) if done}


def ask(steps: FirstSteps, key: str, model: str) -> dict:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    call = urllib.request.Request(f"{steps.gateway.url}/chat/completions", body, headers)
    with urllib.request.urlopen(call, timeout=60) as answer:
        found = json.loads(answer.read())
    steps.gateway.services.store.journal.flush(60)
    return found


@pytest.mark.parametrize(
    ("token", "provider"),
    [
        ("sk-ant-api03-x", "anthropic"),
        ("sk-proj-x", "openai"),
        ("sk-svcacct-x", "openai"),
        ("AIzaSyx", "google-ai-studio"),
        ("gsk_x", "groq"),
        ("xai-x", "xai"),
        ("pplx-x", "perplexity"),
        ("csk-x", "cerebras"),
        ("fw_x", "fireworks"),
    ],
)
def test_the_form_of_a_key_names_its_provider(token: str, provider: str) -> None:
    providers = loader.load("", sandbox=True).providers.values()
    assert [one.id for one in find_providers(providers, token)] == [provider]


def test_keys_of_several_providers_and_of_none_are_not_guessed() -> None:
    providers = loader.load("", sandbox=True).providers.values()
    assert {"openai", "deepseek"} <= {one.id for one in find_providers(providers, "sk-0123456789abcdef")}
    assert find_providers(providers, "0123456789abcdef") == find_providers(providers, "") == []


def test_a_pasted_key_is_recognised_tested_and_used_in_all_projects(steps: FirstSteps, owner: PlainBrowser) -> None:
    store = steps.gateway.services.store
    organization_id = steps.gateway.organization_id
    create_project(store.database, store.control, organization_id, "Other", actor="test")
    assert done_steps(owner.open(START)) == set()
    for token, name, fake in (
        (OPENAI_KEY, "OpenAI", steps.openai),
        (ANTHROPIC_KEY, "Anthropic", steps.anthropic),
    ):
        page = owner.submit(START, "connect", token=token)
        assert f"{name} is connected" in page and token not in page
        assert len(fake.calls) == 1, "the key is tested once"
    assert "connect" in done_steps(page)
    modes = {project.mode for project in list_projects(store.database, [organization_id])}
    assert modes == {"hybrid"}
    assert ask(steps, steps.gateway.key, "gpt-4o-mini")["choices"]
    assert steps.openai.calls[-1].headers["authorization"] == f"Bearer {OPENAI_KEY}"


def test_a_key_that_the_provider_refuses_is_not_kept(steps: FirstSteps, owner: PlainBrowser) -> None:
    steps.openai.script(Answer(status=401))
    page = owner.submit(START, "connect", status=400, token=OPENAI_KEY)
    assert "OpenAI did not accept the key, so it was not saved" in page and OPENAI_KEY not in page
    store = steps.gateway.services.store
    assert done_steps(page) == set()
    assert {project.mode for project in list_projects(store.database, [steps.gateway.organization_id])} == {"credits"}
    assert "No provider keys yet" in owner.open("/console/providers/keys")
    assert "OpenAI is connected" in owner.submit(START, "connect", token=OPENAI_KEY)


def test_an_unclear_key_asks_for_its_provider(steps: FirstSteps, owner: PlainBrowser) -> None:
    page = owner.submit(START, "connect", status=400, token="sk-0123456789abcdef")
    assert "Choose the provider" in page and "OpenAI" in page and "DeepSeek" in page
    assert "Choose the provider" in owner.submit(START, "connect", status=400, token="0123456789abcdef")
    assert not steps.openai.calls
    page = owner.submit(START, "connect", token="sk-0123456789abcdef", provider="openai")
    assert "OpenAI is connected" in page


def test_a_tool_gets_its_settings_and_the_step_is_done_with_its_first_request(
    steps: FirstSteps, owner: PlainBrowser
) -> None:
    """Without a provider: the sandbox answers."""
    page = owner.submit(START, "create", tool="claude")
    (token,) = owner.texts("token")
    (shell,) = [step.text for step in read_clients(page)["claude"]]
    assert f"ANTHROPIC_AUTH_TOKEN={token}\n" in shell and f"ANTHROPIC_BASE_URL={steps.gateway.address}\n" in shell
    assert "Waiting for the first request of Claude Code" in page and 'hx-trigger="every 2s"' in page
    assert "tool" not in done_steps(page)
    ask(steps, token, "auto")
    page = owner.open(START)
    assert done_steps(page) == {"tool"} and "answered with status 200" in page and "every 2s" not in page


def test_the_step_waits_for_the_tool_that_was_picked(steps: FirstSteps, owner: PlainBrowser) -> None:
    """A request from before, with another key, is no sign that the tool works."""
    ask(steps, steps.gateway.key, "auto")
    assert done_steps(owner.open(START)) == {"tool"}
    page = owner.submit(START, "create", tool="claude")
    (token,) = owner.texts("token")
    assert "Waiting for the first request of Claude Code" in page and "answered with" not in page
    (polled,) = re.findall(r'hx-get="[^"]*(/console/start[^"]*)"', page)
    assert "?apiKeyId=key_" in polled
    assert "answered with" not in owner.open(polled)
    ask(steps, token, "auto")
    assert "answered with status 200" in owner.open(polled)


def test_a_failed_first_request_is_shown_and_the_page_keeps_waiting(steps: FirstSteps, owner: PlainBrowser) -> None:
    with pytest.raises(urllib.error.HTTPError):
        ask(steps, steps.gateway.key, "sandbox-fail-400")
    steps.gateway.services.store.journal.flush(60)
    page = owner.open(START)
    assert "failed with status 400" in page and 'hx-trigger="every 2s"' in page and done_steps(page) == set()


def test_the_team_is_invited_with_team_and_limit(steps: FirstSteps, owner: PlainBrowser) -> None:
    page = owner.submit(START, "invite", email="dev@acme.example", team="Research", periodUsageLimit="25")
    (link,) = owner.texts("link")
    assert "/console/invitation?token=" in link and "team" in done_steps(page)
    owner.submit(START, "invite", email="ops@acme.example", team="research")
    people = owner.open("/console/people")
    assert "dev@acme.example" in people and "$25.00" in people
    assert owner.open("/console/teams").count(">Research<") == 1 and "research" not in people
    page = owner.submit(START, "invite", status=400, email="not an address", team="Research", periodUsageLimit="25")
    assert 'value="not an address"' in page and 'value="25"' in page and not owner.texts("link")


def test_a_developer_sees_only_the_step_of_the_tool(steps: FirstSteps, owner: PlainBrowser) -> None:
    management = steps.gateway.services.management
    owner.submit(START, "invite", email="dev@acme.example")
    (link,) = owner.texts("link")
    session = management.sign_up(link.partition("token=")[2], "Dev", "a-long-password-0123456789", "127.0.0.1")
    developer = PlainBrowser(steps.gateway.address, session.token)
    assert [name for _, name in DONE.findall(developer.open(START))] == ["tool"]
    developer.submit(START, "create", tool="curl")
    assert developer.texts("token")


def test_a_key_for_a_colleague_is_offered_before_there_is_one(steps: FirstSteps, owner: PlainBrowser) -> None:
    """The third step leads there: a form without a word about colleagues would be a dead end."""
    assert "/console/keys/new" in owner.open(START)
    page = owner.open("/console/keys/new")
    assert '<label for="member">For</label>' in page and "accepted an <a" in page
    owner.submit(START, "invite", email="anna@acme.example", periodUsageLimit="25")
    (link,) = owner.texts("link")
    management = steps.gateway.services.management
    session = management.sign_up(link.partition("token=")[2], "Anna", "a-long-password-0123456789", "127.0.0.1")
    page = owner.open("/console/keys/new")
    assert ">Anna</option>" in page and "accepted an <a" not in page
    budget = PlainBrowser(steps.gateway.address, session.token).open("/console").partition("Your budget")[2]
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", budget.partition("</section>")[0]))
    assert "$0.00 in total" in text and "$0.00 of $25.00 per month" in text
