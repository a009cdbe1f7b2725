"""Ids of others' objects at every operation on stored objects that the table of model surfaces has."""

import re

from support.gateways import LocalGateway
from support.shared import Share
from support.videos import begin, call, end_of, films_of

from gateway.accounts import keys, projects
from gateway.surfaces.model_surfaces import SURFACES

VARIABLE = re.compile(r"<(?:path:)?(\w+)>")
HELLO = [{"role": "user", "content": "Hello"}]
STORED = [row for surface in SURFACES for row in surface.operations if set(VARIABLE.findall(row.path)) - {"model"}]


def strangers(gateway: LocalGateway) -> dict[str, str]:
    """Return API keys of another organization, of another project, and of a customer of the same project."""
    services = gateway.services
    stores = services.store.database, services.store.control
    owner = services.accounts.authentication.caller(gateway.key)
    project = projects.create_project(*stores, owner.organization_id, "Other", actor="test")
    drafts = {
        "project": keys.Draft(project.id, owner.member_id, "other"),
        "customer": keys.Draft(owner.project_id, owner.member_id, "customer", "customer"),
    }
    made = {
        name: keys.create(*stores, services.store.secrets.hash_keys, draft, actor="test").token
        for name, draft in drafts.items()
    }
    return {**made, "organization": gateway.add_organization(f"other-{owner.project_id[-12:]}")}


def test_stored_objects_are_unknown_to_other_organizations_projects_and_customers(share: Share) -> None:
    gateway = films_of(share)
    video = end_of(gateway, begin(gateway)["id"])["id"]
    response = call(gateway, "POST", "/responses", json={"model": "sandbox-echo", "input": "Hello"}).json()["id"]
    chat = call(gateway, "POST", "/chat/completions", json={"model": "sandbox-echo", "messages": HELLO})
    gateway.services.store.journal.flush(60)
    ids = {
        "/v1/videos/logs/<log_id>/content": video.removeprefix("video_"),
        "/v1/route/explain/<log_id>": chat.json()["metadata"]["log_id"],
        "video_id": video,
        "response_id": response,
    }
    others = strangers(gateway)
    for row in STORED:
        path = VARIABLE.sub(lambda found, row=row: ids.get(row.path) or ids[found[1]], row.path).removeprefix("/v1")
        for name, key in others.items():
            assert call(gateway, row.method, path, key).status_code == 404, (name, row.method, path)
        if row.method == "GET":
            assert call(gateway, "GET", path).status_code == 200, path
