"""The console as each role sees it: a walk over all pages and actions of the table.

The pages offer a person what the management API allows, and refuse what they do not offer.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest
from support.console import CSRF, open_page
from support.console_walk import Walk, signed_in_rows, submit, walk
from support.management import Person, Tenants
from support.management_bodies import begin_batch, store_file

from gateway.accounts import members, request_shares, saved_views, scoped_roles
from gateway.accounts.request_shares import SESSION, RequestShare
from gateway.callers.permissions import RANKS

pytestmark = pytest.mark.slow

ROLES = ("acme developer", "acme admin", "acme owner", "both", "viewer", "billing", "team lead", "project admin")
WALKING = (*ROLES, "acme colleague", "rival owner", "operator")
# Pages to which forms lead, and no link.
# A form leads to the first, the terminal prints the second, and the third is linked until statistics count a request. A
# script reads the next two, no run was started, and the bell fetches the last in the background.
UNLINKED = frozenset(
    (
        *("/console/models/compare", "/console/welcome", "/console/start"),
        *("/console/playground/models", "/console/playground/presets", "/console/playground/runs/<run_id>"),
        "/console/notices/count",
    )
)
# Actions that end what the walk needs: the session or the account.
ENDING = frozenset(("everywhere", "end", "sign-out", "leave", "change", "begin", "confirm", "remove-factor"))
# Forms that need more than a plausible text in each field: a passkey, another type of rule, a provider that answers,
# the subjects of a limit, a file, what a guardrail looks for, the document of a route, a tag with its value, a date.
DEMANDING = frozenset(
    (
        ("/console/account", ""),
        ("/console/automation/<organization_id>/accounts/<account_id>", "add-rule"),
        ("/console/budgets", "put"),
        ("/console/budgets", "preview"),
        ("/console/budgets/<organization_id>/<limit_id>", "ask"),
        ("/console/budgets/<organization_id>/<limit_id>", "raise"),
        ("/console/budgets/<organization_id>/<limit_id>", "try"),
        ("/console/files", ""),
        ("/console/guardrails", "add"),
        ("/console/keys/<key_id>", "tags"),
        ("/console/providers/keys", "test"),
        ("/console/routes", "check"),
        ("/console/routes", "run"),
        ("/console/routes", "save"),
        ("/console/start", "connect"),
    )
)
# Actions that change nothing; what they show is tested with their pages.
READING = frozenset(("explain", "simulate", "preview", "try"))
PROBLEM = re.compile(r'class="problem" role="alert">(.*?)</p>')
REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@dataclass(frozen=True)
class Furnished:
    """Closed tenants with something on each page: requests, teams, provider keys, a custom provider and an alert, and
    the walk of each person. "both" is an admin of one organization and a developer of the other."""

    data: Path
    key: str
    people: dict[str, Person]
    walks: dict[str, Walk]


@pytest.fixture(scope="module")
def furnished(open_tenants: Callable[..., AbstractContextManager[Tenants]]) -> Furnished:
    with open_tenants() as tenants:
        services = tenants.services
        admin = tenants["acme admin"]
        stores = services.store.database, services.store.control
        rival = tenants["rival owner"]
        members.add_member(*stores, rival.organization_id, "admin@acme.example", "developer", actor="test")
        tenants.people["both"] = Person(tenants.open(admin.user_id), *_rest(admin))
        operator = tenants.open_operator()
        tenants.people["operator"] = Person(operator, *_rest(tenants["acme owner"]))
        for name in ("acme owner", "rival owner"):
            furnish(tenants, tenants[name])
        for role in ("viewer", "billing", "team lead", "project admin"):
            kind = role if role in RANKS else "developer"
            email = f"{role.replace(' ', '-')}@acme.example"
            owner = tenants["acme owner"]
            tenants.people[role] = tenants.join(owner.organization_id, owner.project_id, email, kind)
        team_id = tenants.ok("GET", f"/orgs/{owner.organization_id}/teams", owner)["teams"][0]["id"]
        colleague = tenants["acme colleague"]
        tenants.ok("PUT", f"/orgs/{owner.organization_id}/teams/{team_id}/members/{colleague.member_id}", owner)
        scoped_roles.set_role(*stores, team_id, tenants["team lead"].member_id, True, actor="test")
        scoped_roles.set_role(*stores, owner.project_id, tenants["project admin"].member_id, True, actor="test")
        walks = {name: walk(tenants, tenants[name]) for name in WALKING}
        folder = Path(services.settings.database.data_dir)
    return Furnished(folder, tenants.gateway.key, tenants.people, walks)


@pytest.fixture
def people(furnished: Furnished, open_tenants: Callable[..., AbstractContextManager[Tenants]]) -> Iterator[Tenants]:
    with open_tenants(furnished) as tenants:
        yield tenants


def _rest(person: Person) -> tuple:
    return person.user_id, person.member_id, person.organization_id, person.project_id, person.key


def furnish(tenants: Tenants, owner: Person) -> None:
    organization = owner.organization_id
    tenants.services.billing.ledger.grant(organization, 10**9, organization)
    database = tenants.services.store.database
    saved_views.add(database, organization, owner.user_id, "Models", "groupBy=model", True)
    saved_views.add(database, organization, owner.user_id, "Failed", "failed=true", True, saved_views.LOGS)
    session = RequestShare("", organization, owner.project_id, owner.user_id, "", SESSION, "walk", 0)
    request_shares.add(database, session)
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
    key = {"organizationId": organization, "provider": "openai", "token": "sk-0123456789abcdef"}
    tenants.ok("POST", "/keys/provider", owner, key)
    limit = {"subjects": ["organization"], "amount": "5000"}
    tenants.ok("PUT", f"/orgs/{organization}/limits/everything", owner, limit)
    provider = {"name": "own-llm", "baseUrl": "https://llm.acme.example/v1", "models": [{"id": "small"}]}
    tenants.ok("POST", f"/orgs/{organization}/custom-providers", owner, provider)
    teams = f"/orgs/{organization}/teams"
    team = tenants.ok("POST", teams, owner, {"name": "Research"})["team"]
    tenants.ok("PUT", f"{teams}/{team['id']}/members/{owner.member_id}", owner)
    begin_batch(tenants, owner)
    store_file(tenants, owner)
    account = {"name": "Terraform", "scopes": ["keys:write"]}
    tenants.ok("POST", f"/orgs/{organization}/service-accounts", owner, account)
    identity = {"name": "CI", "projectId": owner.project_id, "issuer": "https://issuer.example", "claims": {"sub": "x"}}
    identities = f"/orgs/{organization}/workload-identities"
    tenants.ok("POST", identities, owner, {**identity, "audience": organization})
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    for person in (owner, tenants[f"{'acme' if owner is tenants['acme owner'] else 'rival'} developer"]):
        tenants.ok("POST", "/v1/chat/completions", person.key.token, body, x_session_id="walk")
    tenants.services.store.journal.flush(60)


def csrf_of(tenants: Tenants, who: Person) -> str:
    return CSRF.findall(open_page(tenants, who, "/console/account"))[0]


@pytest.mark.extended
def test_every_link_of_a_page_can_be_opened_by_the_person_who_sees_it(furnished: Furnished) -> None:
    for role, done in furnished.walks.items():
        failed = {path: status for path, status in done.statuses.items() if status != HTTPStatus.OK}
        assert not failed, (role, failed)
    reached = {place for who in ("acme owner", "operator") for place in furnished.walks[who].places.values()}
    assert set(signed_in_rows()) - reached - UNLINKED == set()


def test_pages_need_a_session(people: Tenants, furnished: Furnished) -> None:
    for path in furnished.walks["acme owner"].statuses:
        answer = people.client.get(path)
        assert answer.status_code == HTTPStatus.SEE_OTHER and "/console/login" in answer.headers["Location"], path


def test_nothing_of_another_organization_is_shown(people: Tenants, furnished: Furnished) -> None:
    owner = people["acme owner"]
    rival = people["rival owner"]
    secrets = (owner.organization_id, owner.project_id, owner.key.info.id, "@acme.example")
    secrets += (people["acme developer"].key.info.id,)
    for path in furnished.walks["acme owner"].statuses:
        answer = people.client.get(path, headers={"Cookie": f"llmgateway.session_token={rival.token}"})
        text = answer.text.replace(path, "")
        shown = [secret for secret in secrets if secret in text and secret not in path]
        # A person of both organizations is a member of this one, too.
        shown = [secret for secret in shown if secret != "@acme.example" or _foreign_emails(text)]
        assert not shown, (path, answer.status_code, shown)
    own = furnished.walks["acme developer"]
    for role in ("viewer", "billing"):
        shown = furnished.walks[role].texts
        assert not [path for path, text in shown.items() if owner.key.info.mask in text or "/console/logs" in text], (
            role
        )
    others = people["acme colleague"].key.info.id
    assert not [path for path, text in own.texts.items() if others in text]


def _foreign_emails(text: str) -> list[str]:
    return [email for email in re.findall(r"[\w.]+@acme\.example", text) if email != "admin@acme.example"]


def subjects(done: Walk) -> set:
    return {form.subject for form in done.forms}


@pytest.mark.parametrize(
    ("offered_to", "refused_to"),
    [
        ("acme owner", "acme developer"),
        ("acme owner", "acme admin"),
        ("acme owner", "rival owner"),
        ("rival owner", "both"),
        ("acme developer", "acme colleague"),
        ("acme owner", "viewer"),
        ("acme owner", "billing"),
        ("acme owner", "team lead"),
        ("acme owner", "project admin"),
    ],
)
def test_actions_that_are_not_offered_are_refused(
    people: Tenants, furnished: Furnished, offered_to: str, refused_to: str
) -> None:
    stranger = people[refused_to]
    own = furnished.walks[refused_to]
    known = subjects(own)
    tokens = {form.place: dict(form.fields).get("csrf", "") for form in own.forms}
    csrf = csrf_of(people, stranger)
    forms = [form for form in furnished.walks[offered_to].forms if form.subject not in known]
    accepted = {}
    for form in forms:
        if not form.subject[2] and not re.search(r"_[0-9a-f]{32}", form.path):
            continue  # it names nothing that could belong to someone else
        answer = submit(people, stranger, form, tokens.get(form.place, csrf))
        if answer.status_code not in REFUSED and form.action not in READING:
            accepted[form.place, form.action, form.path] = answer.status_code
    assert not accepted


@pytest.mark.parametrize("role", ROLES)
def test_offered_actions_succeed(people: Tenants, furnished: Furnished, role: str) -> None:
    who = people[role]
    forms = furnished.walks[role].forms
    chosen = {(form.place, form.action): form for form in forms if form.action not in ENDING}
    assert chosen
    refused = {}
    for form in sorted(chosen.values(), key=_is_destructive):
        answer = submit(people, who, form)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            refused[form.place, form.action] = answer.status_code, PROBLEM.findall(answer.text), form.fields
    assert refused.keys() <= DEMANDING, refused


def _is_destructive(form) -> tuple[bool, bool, str]:
    ends = bool(re.search("remove|delete|archive|drop|erase", form.action))
    return ends, bool(re.search("deactivate|switch|roll|status", form.action)), form.action
