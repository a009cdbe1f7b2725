"""A gateway with members, for tests of the management API."""

import re
from dataclasses import dataclass
from typing import Any

import orjson
from flask.testing import FlaskClient
from support.gateways import LocalGateway

from gateway.accounts import keys, members
from gateway.limits.budgets import Limits
from gateway.surfaces.console import authorize
from gateway.surfaces.description.openapi import VARIABLE, errors_of
from gateway.surfaces.management.table import OPERATIONS
from gateway.surfaces.oauth import routes as oauth

PASSWORD = "correct horse battery"
ROLES = ("owner", "admin", "developer", "colleague")

# The operations by the pattern of their paths; a path with fewer variables comes first.
ROUTES = sorted(
    (
        (re.compile(VARIABLE.sub("[^/]+", operation.path)), operation)
        for operation in (*OPERATIONS, *oauth.OPERATIONS, *authorize.OPERATIONS)
    ),
    key=lambda route: route[1].path.count("<"),
)


class CheckedClient(FlaskClient):
    """A client that checks that the API description of an operation has the status and the media type of its answer."""

    def open(self, *args: Any, **more: Any) -> Any:
        answer = super().open(*args, **more)
        sent = answer.request
        for route, operation in ROUTES:
            about = operation.about
            if operation.method == sent.method and about is not None and route.fullmatch(sent.path):
                asked = f"{sent.method} {operation.path}: {answer.status_code} {answer.content_type}"
                assert answer.status_code in (*about.success, *about.alike, *errors_of(about)), asked
                if answer.status_code == 200:
                    assert answer.mimetype in {media.partition(";")[0] for media in (about.media, *about.also)}, asked
                break
        return answer


@dataclass(frozen=True)
class Person:
    """A member with a session; `key` is the member's key in the organization's project."""

    token: str
    user_id: str
    member_id: str
    organization_id: str
    project_id: str
    key: keys.NewKey


class Tenants:
    """A gateway with two organizations, each with an owner, an admin and two developers."""

    def __init__(self, gateway: LocalGateway, people: dict[str, Person] | None = None) -> None:
        self.gateway = gateway
        self.services = gateway.services
        app = gateway.app.flask
        self.client = CheckedClient(app, app.response_class, use_cookies=False)
        self.people = dict(people or {})
        if people is None:
            for name in ("acme", "rival"):
                self.settle(name)

    def settle(self, name: str) -> None:
        management = self.services.management
        root = members.list_members(self.services.store.database)[0]
        made = management.create_organization(name, root.user_id, root.email)
        project = self.ok("GET", f"/orgs/{made.id}/projects", self.open(root.user_id))["projects"][0]
        for role in ROLES:
            kind = "developer" if role == "colleague" else role
            self.people[f"{name} {role}"] = self.join(made.id, project["id"], f"{role}@{name}.example", kind)

    def join(self, organization_id: str, project_id: str, email: str, role: Any) -> Person:
        services = self.services
        member = members.add_member(
            services.store.database, services.store.control, organization_id, email, role, actor="operator"
        )
        draft = keys.Draft(project_id, member.id, f"Key of {email}")
        key = services.management.create_key(draft, Limits(), actor=member.user_id)
        token = self.open(member.user_id)
        return Person(token, member.user_id, member.id, organization_id, project_id, key)

    def open(self, user_id: str) -> str:
        return self.services.management.sessions.open(user_id).token

    @property
    def operator_id(self) -> str:
        """The user who owns the first organization."""
        return members.list_members(self.services.store.database)[0].user_id

    def open_operator(self) -> str:
        return self.open(self.operator_id)

    def __getitem__(self, name: str) -> Person:
        return self.people[name]

    def call(self, method: str, path: str, who: Person | str = "", body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request and return status and decoded body; `who` is a person or a session token."""
        if path.partition("?")[0] in ("/activity", "/activity/sources"):
            self.services.billing.rollups.catch_up()  # statistics lag behind the requests
        token = who.token if isinstance(who, Person) else who
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else orjson.dumps(body)
        if data is not None:
            sent["Content-Type"] = "application/json"
        answer = self.client.open(path, method=method, headers=sent, data=data)
        try:
            return answer.status_code, orjson.loads(answer.data)
        except orjson.JSONDecodeError:
            return answer.status_code, answer.get_data(as_text=True)

    def ok(self, method: str, path: str, who: Person | str = "", body: Any = None, **headers: str) -> Any:
        """Send a request that must succeed and return the body."""
        status, answer = self.call(method, path, who, body, **headers)
        assert status < 300, (status, answer)
        return answer

    def refused(self, method: str, path: str, who: Person | str = "", body: Any = None, **headers: str) -> str:
        """Send a request that must fail and return status and code, as "403 permission_denied"."""
        status, answer = self.call(method, path, who, body, **headers)
        assert status >= 400, (status, answer)
        assert answer["message"] and answer["status"] == status, answer
        return f"{status} {answer['code']}"
