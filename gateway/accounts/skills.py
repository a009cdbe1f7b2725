"""Skills: texts that an organization publishes to its members' tools, each with a name, a description and files."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import Organization, Skill
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
PATH = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._/-]{0,199}")
MAX_CONTENT_LENGTH = 200_000
MAX_BYTES = 1 << 20
MAX_FILES = 100
MAX_SKILLS = 500
ENCODINGS = ("utf-8", "base64")


class SkillInfo(Struct, frozen=True):
    """`content` and `files` are empty in lists."""

    id: str
    organization_id: str
    name: str
    description: str
    enabled: bool
    content: str = ""
    files: Sequence[Mapping[str, Any]] = ()
    updated_at_us: int = 0


def publish_skill(
    database: Database,
    control: Control,
    organization_id: str,
    content: str,
    files: Sequence[Mapping[str, Any]] = (),
    *,
    actor: str,
) -> SkillInfo:
    """Keep a skill under the name in its front matter, in place of an earlier one of that name. InvalidRequest."""
    name, description = read_front_matter(content)
    _check_files(content, files)
    skill_id = ids.new("skill")

    def work(now: int) -> SkillInfo:
        if not Organization.select().where(Organization.id == organization_id).exists():
            raise NotFound(f"There is no organization {organization_id}.")
        values = {"description": description, "content": content, "files": json.dumps(list(files)), "updated_at": now}
        row = Skill.get_or_none(Skill.organization == organization_id, Skill.name == name)
        if row is None:
            _check_quota(organization_id)
            Skill.insert(id=skill_id, organization=organization_id, name=name, created_at=now, **values).execute()
        else:
            Skill.update(enabled=True, **values).where(Skill.id == row.id).execute()
        published_id = row.id if row else skill_id
        _audit("skill.publish", published_id, organization_id, name, actor, now)
        return _info(Skill.get_by_id(published_id))

    return commit(database, control, work, confirm=False)


def list_skills(database: Database, organization_id: str) -> list[SkillInfo]:
    """The organization's skills by name, without their texts."""
    query = Skill.select().where(Skill.organization == organization_id).order_by(Skill.name)
    return database.read(
        lambda: [SkillInfo(row.id, organization_id, row.name, row.description, row.enabled) for row in query]
    )


def find_skill(database: Database, organization_id: str, skill_id: str) -> SkillInfo:
    """One skill, whole. NotFound."""
    return database.read(lambda: _info(_load(organization_id, skill_id)))


def set_skill_enabled(
    database: Database, control: Control, organization_id: str, skill_id: str, enabled: bool, *, actor: str
) -> SkillInfo:
    """Offer a skill for installation or not. NotFound."""

    def work(now: int) -> SkillInfo:
        row = _load(organization_id, skill_id)
        Skill.update(enabled=enabled, updated_at=now).where(Skill.id == skill_id).execute()
        _audit(f"skill.{'enable' if enabled else 'disable'}", skill_id, organization_id, row.name, actor, now)
        return _info(_load(organization_id, skill_id))

    return commit(database, control, work, confirm=False)


def remove_skill(database: Database, control: Control, organization_id: str, skill_id: str, *, actor: str) -> None:
    """Remove a skill. NotFound."""

    def work(now: int) -> None:
        row = _load(organization_id, skill_id)
        Skill.delete().where(Skill.id == skill_id).execute()
        _audit("skill.delete", skill_id, organization_id, row.name, actor, now)

    commit(database, control, work, confirm=False)


def read_front_matter(content: str) -> tuple[str, str]:
    """Name and description from the lines between the two `---` at the top of a SKILL.md. InvalidRequest."""
    lines = content.replace("\r\n", "\n").lstrip("\ufeff").split("\n")
    if not lines or lines[0].strip() != "---" or "---" not in [line.strip() for line in lines[1:]]:
        raise InvalidRequest("A skill begins with front matter between two lines of '---'.", param="content")
    end = [line.strip() for line in lines[1:]].index("---") + 1
    front_matter = {}
    for line in lines[1:end]:
        key, colon, value = line.partition(":")
        if colon and not line[:1].isspace():
            front_matter[key.strip()] = value.strip().strip("'\"")
    name = front_matter.get("name", "")
    description = front_matter.get("description", "")
    if not NAME.fullmatch(name) or len(name) > 64:
        raise InvalidRequest("name takes 1 to 64 of a-z, 0-9 and single hyphens.", param="content")
    if not 1 <= len(description) <= 1024:
        raise InvalidRequest("description needs 1 to 1024 characters.", param="content")
    return name, description


def _check_files(content: str, files: Sequence[Mapping[str, Any]]) -> None:
    if len(content) > MAX_CONTENT_LENGTH or "\0" in content:
        raise InvalidRequest(f"A skill's text has at most {MAX_CONTENT_LENGTH} characters.", param="content")
    if len(files) > MAX_FILES:
        raise InvalidRequest(f"A skill has at most {MAX_FILES} files.", param="files")
    size = len(content)
    used_paths = {"skill.md"}
    for file in files:
        path = file.get("path", "")
        parts = path.split("/")
        if not PATH.fullmatch(path) or any(part in ("", ".", "..") for part in parts) or path.lower() in used_paths:
            raise InvalidRequest(f"{path!r} is not a valid path, or occurs twice.", param="files")
        used_paths.add(path.lower())
        size += len(file.get("content", ""))
    if size > MAX_BYTES:
        raise InvalidRequest(f"A skill has at most {MAX_BYTES} bytes.", param="files")


def _check_quota(organization_id: str) -> None:
    if Skill.select().where(Skill.organization == organization_id).count() >= MAX_SKILLS:
        raise InvalidRequest(f"An organization has at most {MAX_SKILLS} skills.")


def _load(organization_id: str, skill_id: str) -> Skill:
    row = Skill.get_or_none(Skill.id == skill_id, Skill.organization == organization_id)
    if row is None:
        raise NotFound(f"There is no skill {skill_id} in this organization.")
    return row


def _audit(action: str, subject: str, organization_id: str, name: str, actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail={"name": name})


def _info(row: Skill) -> SkillInfo:
    return SkillInfo(
        row.id,
        row.organization_id,
        row.name,
        row.description,
        row.enabled,
        row.content,
        json.loads(row.files),
        row.updated_at,
    )
