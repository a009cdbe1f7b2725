"""`/orgs`: organizations, their compliance policy and their skills."""

from typing import Any

from marshmallow import INCLUDE, fields, validate

from gateway.accounts import organizations, skills
from gateway.accounts.skills import SkillInfo
from gateway.limits.ledger import Balance
from gateway.surfaces.management.access_groups import SIGNED_IN, in_organization
from gateway.surfaces.management.answers import PLAN, OrganizationAnswer, SkillAnswer, WholeSkillAnswer
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, StrictBoolean, TextField
from gateway.surfaces.web.http import Operation

TAG = "Organizations"
SKILLS = "Skills"


class Named(Body):
    name = TextField(1, 255, required=True)


class OrganizationChange(Body):
    name = TextField(1, 255, about="New name.")
    leadsAddMembers = StrictBoolean("Whether leads of teams add developers and viewers of the organization to them.")


class Policy(Body):
    """The flags of the compliance policy; their names and types are validated where they are evaluated."""

    class Meta:
        unknown = INCLUDE


SKILL = "---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"


class SkillFile(Body):
    path = TextField(1, 200, required=True)
    content = TextField(0, 1 << 20, required=True)
    encoding = OneOf(skills.ENCODINGS, load_default="utf-8")


class NewSkill(Body):
    content = TextField(1, skills.MAX_CONTENT_LENGTH, required=True, example=SKILL)
    files = fields.List(fields.Nested(SkillFile), load_default=list, validate=validate.Length(0, skills.MAX_FILES))


class SkillChange(Body):
    enabled = StrictBoolean(required=True)


def list_organizations(call: ManagedCall[None]) -> list[OrganizationAnswer]:
    """The organizations that you are a member of, with your role; credits are shown to owners and admins."""
    return [_show(call, info) for info in call.page.cut(call.visitor.organizations())]


def create(call: ManagedCall[None]) -> OrganizationAnswer:
    """Create an organization with a first project and without credits; you are its owner."""
    call.visitor.check_account_access()
    info = call.management.create_organization(call.fields["name"], call.actor, call.visitor.session.email)
    return show_organization(info, "owner", call.management.ledger.balance(info.id))


def find(call: ManagedCall[str]) -> OrganizationAnswer:
    """An organization that you are a member of; its credits are shown to owners and admins."""
    return _show(call, organizations.find_organization(call.database, call.subject))


def change(call: ManagedCall[str]) -> OrganizationAnswer:
    """Change the name, and whether leads add members to their teams. Ids and keys do not change."""
    changed = organizations.change_organization(
        *call.stores,
        call.subject,
        actor=call.actor,
        name=call.fields.get("name"),
        leads_add_members=call.fields.get("leadsAddMembers"),
    )
    return _show(call, changed)


def find_policy(call: ManagedCall[str]) -> dict[str, Any]:
    """The requirements on providers of this organization's requests; an empty object requires nothing."""
    return dict(organizations.find_organization(call.database, call.subject).policy)


def set_policy(call: ManagedCall[str]) -> dict[str, Any]:
    """Replace the compliance policy; an empty object removes it."""
    known = call.visitor.names_known_to(call.subject)
    info = organizations.set_policy(*call.stores, call.subject, call.fields, actor=call.actor, known=known)
    return dict(info.policy)


def list_skills(call: ManagedCall[str]) -> list[SkillAnswer]:
    """Name, description and state of each; request a single skill for its text."""
    return [SkillAnswer.of(info) for info in skills.list_skills(call.database, call.subject)]


def find_skill(call: ManagedCall[str]) -> WholeSkillAnswer:
    """The skill with its own text and those of its files."""
    return WholeSkillAnswer.of(skills.find_skill(call.database, call.subject, call.params["skill_id"]))


def publish_skill(call: ManagedCall[str]) -> SkillAnswer:
    """Publish a skill under the name in its front matter, replacing an earlier one of that name."""
    content = call.fields["content"]
    files = call.fields["files"]
    return SkillAnswer.of(skills.publish_skill(*call.stores, call.subject, content, files, actor=call.actor))


def change_skill(call: ManagedCall[str]) -> SkillAnswer:
    """A disabled skill is kept but not offered."""
    info: SkillInfo = skills.set_skill_enabled(
        *call.stores, call.subject, call.params["skill_id"], call.fields["enabled"], actor=call.actor
    )
    return SkillAnswer.of(info)


def remove_skill(call: ManagedCall[str]) -> None:
    """Delete a skill and its files."""
    skills.remove_skill(*call.stores, call.subject, call.params["skill_id"], actor=call.actor)


def show_organization(info: organizations.OrganizationInfo, role: str, balance: Balance | None) -> OrganizationAnswer:
    """Return an organization; `balance` is None for a visitor who may not see it."""
    return OrganizationAnswer.of(info, plan=PLAN, role=role, credits=balance.balance_nusd if balance else None)


def _show(call: ManagedCall[Any], info: organizations.OrganizationInfo) -> OrganizationAnswer:
    role = call.visitor.member(info.id).role
    balance = call.management.ledger.balance(info.id) if call.visitor.manages("credits:read", info.id) else None
    return show_organization(info, role, balance)


PATH = "/orgs/<organization_id>"
SKILL = f"{PATH}/skills/<skill_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/orgs", list_organizations, "List your organizations", tag=TAG,
            who=SIGNED_IN, scope="settings:read",
            query=ListPageQuery, inside="organizations", commands=("organizations list",)),
    managed("POST", "/orgs", create, "Create an organization", tag=TAG, who=SIGNED_IN, request=Named,
            inside="organization", success=201, audit=("organization.create", "member.create", "project.create")),
    managed("GET", PATH, find, "Show an organization", tag=TAG,
            who=in_organization("organization:read"), scope="settings:read",
            inside="organization", commands=("organizations show <organization_id>",)),
    managed("PATCH", PATH, change, "Change an organization", tag=TAG,
            who=in_organization("organization:write"), scope="settings:write", request=OrganizationChange,
            inside="organization", audit="organization.update",
            commands=("organizations rename <organization_id> <name>",
                      "organizations set <organization_id> --leads-add-members=leadsAddMembers")),
    managed("GET", f"{PATH}/policy", find_policy, "Show the compliance policy", tag=TAG,
            who=in_organization("organization:read"), scope="settings:read",
            inside="policy", commands=("organizations policy <organization_id>",)),
    managed("PUT", f"{PATH}/policy", set_policy, "Replace the compliance policy", tag=TAG,
            who=in_organization("organization:write"), scope="settings:write",
            request=Policy, inside="policy", audit="organization.update_policy",
            commands=("organizations policy <organization_id> --set=*",)),
    managed("GET", f"{PATH}/skills", list_skills, "List skills", tag=SKILLS,
            who=in_organization("organization:read"), scope="settings:read",
            inside="skills"),
    managed("POST", f"{PATH}/skills", publish_skill, "Publish a skill", tag=SKILLS,
            who=in_organization("organization:write"), scope="settings:write", request=NewSkill,
            inside="skill", audit="skill.publish"),
    managed("GET", SKILL, find_skill, "Show a skill with its texts", tag=SKILLS,
            who=in_organization("organization:read"), scope="settings:read",
            inside="skill"),
    managed("PATCH", SKILL, change_skill, "Enable or disable a skill", tag=SKILLS,
            who=in_organization("organization:write"), scope="settings:write", request=SkillChange,
            inside="skill", audit=("skill.enable", "skill.disable")),
    managed("DELETE", SKILL, remove_skill, "Remove a skill", tag=SKILLS,
            who=in_organization("organization:write"), scope="settings:write", message="Skill removed.",
            audit="skill.delete"),
)  # fmt: skip
