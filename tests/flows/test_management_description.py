"""The API description against a running gateway: whatever fits it gets an answer that it documents."""

import random
from collections.abc import Callable, Iterator

import pytest
import schemathesis
from hypothesis import given
from support.gateways import LocalGateway, local_gateway

from gateway.accounts import keys, members, projects

EXAMPLES = 2
PARTS = 6  # so that several processes may share the work
METRICS_TOKEN = "an operator's token of some length"
# One surface reads the model from this header, and refuses every request without an existing model.
MODEL_HEADER, MODEL = "ai-language-model-id", "auto"
NAMED = {"organizationId": "organization_id", "projectId": "project_id"}
# With existing ids, these operations would lock the test out of its organization.
ENDS = (
    "DELETE /keys/api/{key_id}",
    "PATCH /keys/api/{key_id}",
    "POST /keys/api/{key_id}/roll",
    "DELETE /projects/{project_id}",
    "PATCH /projects/{project_id}",
)
SIGN_OUTS = ("POST /auth/sign-out", "POST /auth/sign-out-everywhere")


@pytest.fixture
def gateway(settings: Callable[..., object]) -> Iterator[LocalGateway]:
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": "correct horse battery", "GATEWAY_METRICS_TOKEN": METRICS_TOKEN}
    with local_gateway(settings, **environment) as running:
        yield running


class Caller:
    """Sends cases with the credential of their operation; about half of the ids in them exist."""

    def __init__(self, gateway: LocalGateway) -> None:
        services = gateway.services
        owner = members.list_members(services.store.database)[0]
        self.sign_in = lambda: services.management.sessions.open(owner.user_id).token
        self.tokens = {
            "session": self.sign_in(),
            "bearerKey": gateway.key,
            "operatorToken": METRICS_TOKEN,
            "scimToken": services.accounts.scim_tokens.create(
                owner.organization_id, "Identity provider", by_owner=True, actor=owner.user_id
            ).token,
        }
        key = keys.list_keys(services.store.database)[0]
        project = projects.list_projects(services.store.database)[0]
        self.known = {
            "organization_id": owner.organization_id,
            "project_id": project.id,
            "key_id": key.id,
            "member_id": owner.id,
            "resource_id": owner.id,
        }
        self.dice = random.Random(11)

    def send(self, case: "schemathesis.Case") -> "schemathesis.Response":
        security = case.operation.definition.raw.get("security") or [{}]
        names = [name for choice in security for name in choice]
        if case.operation.label in SIGN_OUTS:
            self.tokens["session"] = self.sign_in()
        # The tool requests gzip as `requests` does, and nothing decompresses the response in process.
        headers = {"Accept-Encoding": "identity"}
        if names:
            headers["Authorization"] = f"Bearer {self.tokens[names[0]]}"
        if MODEL_HEADER in (case.headers or {}) and self.dice.random() < 0.6:
            headers[MODEL_HEADER] = MODEL
        if case.operation.label not in ENDS and self.dice.random() < 0.6:
            known = {name: self.known[name] for name in case.path_parameters or {} if name in self.known}
            case.path_parameters = {**(case.path_parameters or {}), **known}
            if isinstance(case.body, dict):
                named = {name: self.known[column] for name, column in NAMED.items() if name in case.body}
                case.body = {**case.body, **named}
        answer = case.call(headers=headers)
        if case.operation.label in SIGN_OUTS:
            self.tokens["session"] = self.sign_in()
        return answer


@pytest.mark.extended
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_answers_as_described(gateway: LocalGateway, part: int) -> None:
    from support.described import CHECKS, description_of, examples

    schema = description_of(gateway.app.flask)
    caller = Caller(gateway)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 80
    for operation in operations[part::PARTS]:

        @examples(EXAMPLES)
        @given(case=operation.as_strategy())
        def answers(case: schemathesis.Case) -> None:
            case.validate_response(caller.send(case), checks=CHECKS)

        answers()
