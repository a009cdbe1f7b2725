"""Ids of others' objects at every operation on stored objects that the table of model surfaces has."""

import json
import re
from typing import Any

from support.gateways import LocalGateway
from support.shared import Share
from support.videos import begin, call, end_of, films_of

from gateway.accounts import keys, projects
from gateway.surfaces.model_surfaces import SURFACES

VARIABLE = re.compile(r"<(?:path:)?(\w+)>")
HELLO = [{"role": "user", "content": "Hello"}]
LINE = {
    **{"custom_id": "1", "method": "POST", "url": "/v1/embeddings"},
    "body": {"model": "sandbox-embed", "input": "Tea"},
}
BODIES: dict[str, dict[str, Any]] = {
    "parts": {"files": {"data": ("a.txt", b"a")}},
    "complete": {"json": {"part_ids": ["part_1"]}},
}
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
    form = {"files": {"file": ("lines.jsonl", json.dumps(LINE))}, "data": {"purpose": "batch"}}
    file = call(gateway, "POST", "/files", **form).json()["id"]
    task = {"input_file_id": file, "endpoint": LINE["url"], "completion_window": "24h"}
    upload = {"bytes": 3, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data"}
    messages = {
        "requests": [{"custom_id": "1", "params": {"model": "sandbox-echo", "max_tokens": 9, "messages": HELLO}}]
    }
    batch_of_messages = call(gateway, "POST", "/messages/batches", json=messages).json()["id"]
    ids = {
        "file_id": file,
        "batch_id": call(gateway, "POST", "/batches", json=task).json()["id"],
        "upload_id": call(gateway, "POST", "/uploads", json=upload).json()["id"],
        "message_batch_id": batch_of_messages,
        "/v1/videos/logs/<log_id>/content": video.removeprefix("video_"),
        "/v1/route/explain/<log_id>": chat.json()["metadata"]["log_id"],
        "video_id": video,
        "response_id": response,
    }
    others = strangers(gateway)
    for row in STORED:
        path = VARIABLE.sub(lambda found, row=row: ids.get(row.path) or ids[found[1]], row.path).removeprefix("/v1")
        body = BODIES.get(path.rsplit("/", 1)[-1], {})
        for name, key in others.items():
            assert call(gateway, row.method, path, key, **body).status_code == 404, (name, row.method, path)
        if row.method == "GET" and not row.path.endswith("/results"):  # of a batch that has not ended
            assert call(gateway, "GET", path).status_code == 200, path
