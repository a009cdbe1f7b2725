"""`/orgs`: organizations, their compliance policy and their skills."""

from typing import Any

from marshmallow import INCLUDE, fields, validate

from gateway.accounts import organizations, skills
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.management.presenters import show_organization, show_skill, show_whole_skill
from gateway.surfaces.validation_schemas import Body, OneOf, TextField, read_body
from gateway.surfaces.visitor import MANAGERS, Visitor

TAG = "Organizations"
SKILLS = "Skills"


class Named(Body):
    name = TextField(1, 255, required=True)


class Policy(Body):
    """The flags of the compliance policy; their names and types are validated where they are evaluated."""

    class Meta:
        unknown = INCLUDE


class SkillFile(Body):
    path = TextField(1, 200, required=True)
    content = TextField(0, 1 << 20, required=True)
    encoding = OneOf(skills.ENCODINGS, load_default="utf-8")


class NewSkill(Body):
    content = TextField(1, skills.LONGEST_CONTENT, required=True)
    files = fields.List(fields.Nested(SkillFile), load_default=list, validate=validate.Length(0, skills.MOST_FILES))


class SkillChange(Body):
    enabled = fields.Boolean(required=True, truthy={True}, falsy={False})


def list_organizations(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The organizations that you are a member of, with your role; credits are shown to owners and admins."""
    found = organizations.list_organizations(visitor.services.store.database, visitor.user_id)
    return {"organizations": [_show(visitor, info) for info in found]}


def create(visitor: Visitor, inbound: Inbound) -> Outbound:
    """A new organization with a first project, owned by the visitor, without credits."""
    name = read_body(Named, inbound)["name"]
    made = visitor.services.management.create_organization(name, visitor.user_id, visitor.session.email)
    balance = visitor.services.management.ledger.balance(made.id)
    return json_reply({"organization": show_organization(made, "owner", balance)}, inbound.shown_id, 201)


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """An organization that you are a member of; its credits are shown to owners and admins."""
    organization_id = visitor.own_organization(inbound)
    info = organizations.find_organization(visitor.services.store.database, organization_id)
    return {"organization": _show(visitor, info)}


def rename(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """For owners and admins; ids and keys do not change."""
    name = read_body(Named, inbound)["name"]
    organization_id = visitor.managed_organization(inbound)
    services = visitor.services
    info = organizations.rename_organization(
        services.store.database, services.store.control, organization_id, name, actor=visitor.user_id
    )
    return {"organization": _show(visitor, info)}


def find_policy(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The requirements on providers of this organization's requests; an empty object requires nothing."""
    organization_id = visitor.own_organization(inbound)
    info = organizations.find_organization(visitor.services.store.database, organization_id)
    return {"policy": dict(info.policy)}


def set_policy(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Replace the compliance policy; an empty object removes it."""
    given = read_body(Policy, inbound)
    organization_id = visitor.managed_organization(inbound)
    services = visitor.services
    info = organizations.set_policy(
        services.store.database,
        services.store.control,
        organization_id,
        given,
        actor=visitor.user_id,
        known=visitor.names_known_to(organization_id),
    )
    return {"policy": dict(info.policy)}


def list_skills(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Name, description and state of each; request a single skill for its text."""
    organization_id = visitor.own_organization(inbound)
    return {"skills": [show_skill(one) for one in skills.list_skills(visitor.services.store.database, organization_id)]}


def find_skill(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The skill with its own text and those of its files."""
    organization_id = visitor.own_organization(inbound)
    skill_id = inbound.params["skill_id"]
    return {"skill": show_whole_skill(skills.find_skill(visitor.services.store.database, organization_id, skill_id))}


def publish_skill(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Publish a skill under the name in its front matter, replacing an earlier one of that name."""
    given = read_body(NewSkill, inbound)
    organization_id = visitor.managed_organization(inbound)
    services = visitor.services
    made = skills.publish_skill(
        services.store.database,
        services.store.control,
        organization_id,
        given["content"],
        given["files"],
        actor=visitor.user_id,
    )
    return {"skill": show_skill(made)}


def change_skill(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A disabled skill is kept but not offered."""
    given = read_body(SkillChange, inbound)
    organization_id = visitor.managed_organization(inbound)
    skill_id = inbound.params["skill_id"]
    services = visitor.services
    changed = skills.set_skill_enabled(
        services.store.database,
        services.store.control,
        organization_id,
        skill_id,
        given["enabled"],
        actor=visitor.user_id,
    )
    return {"skill": show_skill(changed)}


def remove_skill(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Delete a skill and its files."""
    organization_id = visitor.managed_organization(inbound)
    skill_id = inbound.params["skill_id"]
    services = visitor.services
    skills.remove_skill(
        services.store.database, services.store.control, organization_id, skill_id, actor=visitor.user_id
    )
    return {"message": "Skill removed."}


def _show(visitor: Visitor, info: organizations.OrganizationInfo) -> dict[str, Any]:
    """With the balance for owners and admins only."""
    role = visitor.member(info.id).role
    if role in MANAGERS:
        balance = visitor.services.management.ledger.balance(info.id)
    else:
        balance = None
    return show_organization(info, role, balance)


ONE = shapes.shape(organization=shapes.ORGANIZATION)
POLICY = shapes.shape(policy="object")
ONE_SKILL = shapes.shape(skill=shapes.SKILL)
PATH = "/orgs/<organization_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/orgs", list_organizations, "List your organizations", tag=TAG,
            answer=shapes.shape(organizations=[shapes.ORGANIZATION])),
    managed("POST", "/orgs", create, "Make an organization", tag=TAG, request=Named, answer=ONE, success=201),
    managed("GET", PATH, find, "Show an organization", tag=TAG, answer=ONE),
    managed("PATCH", PATH, rename, "Rename an organization", tag=TAG, request=Named, answer=ONE),
    managed("GET", f"{PATH}/policy", find_policy, "Show the compliance policy", tag=TAG, answer=POLICY),
    managed("PUT", f"{PATH}/policy", set_policy, "Replace the compliance policy", tag=TAG, request=Policy,
            answer=POLICY),
    managed("GET", f"{PATH}/skills", list_skills, "List skills", tag=SKILLS,
            answer=shapes.shape(skills=[shapes.SKILL])),
    managed("POST", f"{PATH}/skills", publish_skill, "Publish a skill", tag=SKILLS, request=NewSkill,
            answer=ONE_SKILL),
    managed("GET", f"{PATH}/skills/<skill_id>", find_skill, "Show a skill with its texts", tag=SKILLS,
            answer=shapes.shape(skill=shapes.WHOLE_SKILL)),
    managed("PATCH", f"{PATH}/skills/<skill_id>", change_skill, "Enable or disable a skill", tag=SKILLS,
            request=SkillChange, answer=ONE_SKILL),
    managed("DELETE", f"{PATH}/skills/<skill_id>", remove_skill, "Remove a skill", tag=SKILLS, answer=shapes.DONE),
)  # fmt: skip
