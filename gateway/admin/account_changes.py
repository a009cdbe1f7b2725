"""Changes across packages for the management API: sign-in, keys with their limits, credits, and a daily quota."""

from functools import partial

from gateway import ids
from gateway.accounts import client_ids, key_caps, keys, members, organizations, projects
from gateway.accounts.changes import OPERATOR, commit
from gateway.accounts.client_ids import ClientIdClaim
from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.device_codes import DeviceRequest, Devices
from gateway.accounts.discounts import Discounts
from gateway.accounts.group_rules import SCIM_SOURCE, GroupNames
from gateway.accounts.identities import lacks_credentials
from gateway.accounts.invitations import InvitationGrant, InvitationInfo, Invitations
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.members import MemberInfo
from gateway.accounts.passkeys import Passkeys
from gateway.accounts.passwords import Passwords
from gateway.accounts.provider_keys import ProviderKeys
from gateway.accounts.provisioning.provisioned_groups import ProvisionedGroups
from gateway.accounts.provisioning.provisioned_users import ProvisionedUsers
from gateway.accounts.scoped_roles import write_role
from gateway.accounts.second_factor import INVALID_CODE, SecondFactors
from gateway.accounts.service_accounts import ServiceAccounts
from gateway.accounts.sessions import NewSession, Sessions
from gateway.accounts.teams import TeamInfo, write_team_member
from gateway.accounts.workload_identities import WorkloadIdentities, WorkloadIdentityDraft, WorkloadIdentityInfo
from gateway.admin import agent_sign_in
from gateway.admin.account_mails import AccountMails
from gateway.admin.default_limits import insert_default_limits
from gateway.admin.funding import Funding, LimitEdit, Posting, check_within_member
from gateway.admin.group_grants import GroupGrants, read_limits
from gateway.admin.key_setters import hold_key, hold_new_expiry
from gateway.admin.provider_check import ProviderCheck
from gateway.admin.sign_in import ATTEMPT_WINDOW_S, KNOWN, SignInLinks, SignInService
from gateway.callers import tokens as tokens_module
from gateway.callers.throttle import Throttle, ThrottleGate
from gateway.callers.vault import Vault
from gateway.configuration import settings
from gateway.control.version import Control
from gateway.errors import Conflict, Forbidden, NotFound, Unauthenticated
from gateway.limits.budgets import Limits
from gateway.limits.models import KEY, MEMBER, TEAM
from gateway.oauth.grants import Grants
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets

# How many changes an organization may make in a day: each adds an entry to the audit log, and many add rows.

DAY_S = 86_400
CODE = "too_many_changes"
# One member may use a quarter of it, developers together three: an admin can still undo their changes.
MEMBER_PART = 4
DEVELOPERS_PART = (3, 4)
ADVICE = (
    "as many as there may be here: continue when the day is over, or ask the operator of this installation to raise "
    "limits.max_changes. Existing entries can be deleted."
)


class ChangePace:
    """Changes of members over the management API, by day from the first one on; `maximum` in an organization, 0 = no
    cap. A change that only deletes is not counted, because the creation was."""

    def __init__(self, throttle: Throttle, maximum: int) -> None:
        self._throttle = throttle
        self._maximum = maximum

    def take(self, member: MemberInfo) -> None:
        """Count one change. RateLimited (code too_many_changes, with the seconds to wait)."""
        if not self._maximum:
            return
        if member.role not in ("owner", "admin"):
            part, whole = DEVELOPERS_PART
        else:
            part, whole = (1, 1)
        self._throttle.take(
            self._gate("a member", member.user_id, self._maximum // MEMBER_PART, "You have"),
            self._gate(
                "an organization", member.organization_id, self._maximum * part // whole, "Your organization has"
            ),
        )

    @staticmethod
    def _gate(owner: str, subject: str, maximum: int, subject_text: str) -> ThrottleGate:
        maximum = max(1, maximum)
        refusal = f"{subject_text} made {maximum:,} changes within a day, {ADVICE}"
        return ThrottleGate(f"changes of {owner}", subject, maximum, DAY_S, refusal, CODE)


# Gives the person who accepts an invitation its team and spending limits, in the transaction of the acceptance.


class InvitationGrants:
    """Writes the team and the limits of invitations."""

    def __init__(self, funding: Funding) -> None:
        self._funding = funding

    def give(self, member: MemberInfo, grant: InvitationGrant, setter: str, now: int) -> None:
        """Add a member to the team, unless it was deleted meanwhile, give the roles in teams and projects, and set the
        limits in the name of `setter`. Lower limits of a former member that a person of a higher rank set stay."""
        if grant.team_id:
            try:
                write_team_member(grant.team_id, member.id, True, actor=setter, now=now)
            except NotFound:
                pass
        for scope_id in grant.part_ids:
            try:
                write_role(scope_id, member.id, True, actor=setter, now=now)
            except NotFound:
                pass
        if not grant.limits:
            return
        wanted = read_limits(grant.limits)

        def edit(before: Limits) -> Limits:
            return Limits(wanted.total_nusd, wanted.period_nusd, wanted.period, before.alert_at, before.reservation)

        place = (MEMBER, member.id, member.organization_id)
        try:
            self._funding.write_limits(*place, edit, setter=setter, actor=setter, now=now)
        except Forbidden:
            pass


MINUTE_S = 60
# Each leaves an entry in the audit log.
# By one user in a day.
DAY_DECISIONS = 2000
DAY_PASSWORDS = 200
DEVICE_DECISIONS = 30  # a minute, by one user
SIGN_UPS = 50  # failed ones, from one place
INVITATION_LOOKS = 60  # a minute, from one place


class Management:
    """The services of the management API; `budgets`, `ledger` and the accounts' objects are for reading as well."""

    def __init__(
        self,
        database: Database,
        control: Control,
        secrets: Secrets,
        passwords: Passwords,
        provider_keys: ProviderKeys,
        custom_providers: CustomProviders,
        provider_check: ProviderCheck,
        discounts: Discounts,
        funding: Funding,
        vault: Vault,
        limits: settings.LimitSettings,
        documents: Documents,
        defaults: settings.OrganizationDefaults,
        throttle: Throttle,
        mail: MailQueue,
        public_url: str,
        grants: Grants,
    ) -> None:
        self._defaults = defaults
        self._database = database
        self._control = control
        self._passwords = passwords
        self._hash_keys = secrets.hash_keys
        self._caps = key_caps.read_caps(limits)
        self._limits = limits
        self.sessions = Sessions(database, secrets)
        self.devices = Devices(database, secrets, self.sessions)
        self.agent_sign_in = agent_sign_in.AgentSignIn(database, secrets, self.devices, grants, self._caps)
        self.invitations = Invitations(database, control, secrets, InvitationGrants(funding).give)
        self.service_accounts = ServiceAccounts(database, control, secrets.hash_keys)
        self.workload_identities = WorkloadIdentities(database, control, secrets.hash_keys, self._caps)
        self.throttle = throttle
        self.provisioned_users = ProvisionedUsers(database, control, self._state_groups)
        self.provisioned_groups = ProvisionedGroups(database, control, self._state_groups)
        self._pace = ChangePace(self.throttle, limits.max_changes)
        self.provider_keys = provider_keys
        self.custom_providers = custom_providers
        self.provider_check = provider_check
        self.discounts = discounts
        self._funding = funding
        self.budgets = funding.budgets
        self.ledger = funding.ledger
        self.group_grants = GroupGrants(database, control, funding)
        self.vault = vault
        self.second_factors = SecondFactors(database, self.vault, secrets.hash_keys)
        self.passkeys = Passkeys(database, secrets.hash_keys)
        self.sign_in = SignInService(
            database,
            passwords,
            self.sessions,
            self.throttle,
            self.second_factors,
            self.passkeys,
            secrets.hash_keys[0],
            documents,
        )
        self.sign_in_links = SignInLinks(database, self.sessions, self.second_factors, throttle, secrets.hash_keys[0])
        self.letters = AccountMails(database, control, passwords, throttle, mail, secrets.hash_keys[0], public_url)

    def _state_groups(self, organization_id: str, member_id: str, groups: GroupNames, actor: str, now: int) -> None:
        """Store the provisioned groups of a member and apply the group rules, within a transaction."""
        self.group_grants.write_groups(organization_id, member_id, SCIM_SOURCE, groups, actor=actor, now=now)

    def count_change(self, member: members.MemberInfo) -> None:
        """Count a change by a member in their organization. Raises RateLimited (code too_many_changes)."""
        self._pace.take(member)

    def sign_up(self, token: str, name: str, password: str, peer: str, agent: str = "") -> NewSession:
        """Create the account of an invited person and open a session. Raises NotFound, Conflict, InvalidRequest
        (password) or RateLimited."""
        gate = ThrottleGate("sign up, place", peer, SIGN_UPS, ATTEMPT_WINDOW_S)
        self.throttle.take(gate)
        self.invitations.find(token)
        hashed = self._passwords.hash(password, peer)
        member = self.invitations.sign_up(token, name, hashed)
        self.throttle.forgive(gate)
        return self.sessions.open(member.user_id, agent)

    def open_invitation(self, token: str, peer: str) -> InvitationInfo:
        """Return the invitation of a token in any state. Raises NotFound, or RateLimited against guessing."""
        self.throttle.take(ThrottleGate("invitations, looked up", peer, INVITATION_LOOKS, MINUTE_S))
        return self.invitations.open(token)

    def find_invitation(self, token: str, peer: str) -> InvitationInfo:
        """Return the invitation of a token if it can be accepted. Raises NotFound or RateLimited."""
        self.throttle.take(ThrottleGate("invitations, looked up", peer, INVITATION_LOOKS, MINUTE_S))
        return self.invitations.find(token)

    def accept_invitation(self, token: str, user_id: str) -> members.MemberInfo:
        """Add a signed-in user to an organization. Raises NotFound, Forbidden (an invitation for another address),
        Conflict or RateLimited."""
        self.throttle.take(ThrottleGate("invitations, accepted", user_id, INVITATION_LOOKS, MINUTE_S))
        return self.invitations.accept_as(token, user_id)

    def change_password(self, user_id: str, email: str, current: str, new: str, current_session: str) -> None:
        """Replace the password of a user who knows the current one, and end the user's other sessions. A user who came
        by a sign-in link has no password yet and sets the first one. Raises Unauthenticated or InvalidRequest."""
        if not lacks_credentials(self._database, user_id):
            self.check_password(user_id, email, current)
        self.throttle.take(ThrottleGate("passwords, changed in a day", user_id, DAY_PASSWORDS, DAY_S))
        members.set_password(
            self._database, self._control, self._passwords, user_id, new, actor=user_id, current_session=current_session
        )

    def confirm_email(self, user_id: str, email: str) -> None:
        """Confirm the address of a signed-in user, so that it can be used to reset the password."""
        work = partial(members.confirm_email, user_id, email, actor=user_id)
        commit(self._database, self._control, lambda now: work(now=now), confirm=False)

    def check_password(self, user_id: str, email: str, password: str) -> None:
        """Raise Unauthenticated unless this is the password of the signed-in user, or RateLimited."""
        gate = ThrottleGate("change password", user_id, KNOWN, ATTEMPT_WINDOW_S)
        self.throttle.take(gate)
        members.sign_in(self._database, self._passwords, email, password, owner=user_id)
        self.throttle.forgive(gate)

    def remove_second_factor(self, user_id: str, email: str, password: str, code: str) -> None:
        """Remove the second factor of a user who knows password and code. Raises Unauthenticated, NotFound (no second
        factor) or RateLimited."""
        self.check_password(user_id, email, password)
        if not self.second_factors.find(user_id).active:
            raise NotFound("There is no second factor to remove.")
        gate = ThrottleGate("second factor, removed", user_id, KNOWN, ATTEMPT_WINDOW_S)
        self.throttle.take(gate)
        if not self.second_factors.check(user_id, code):
            raise Unauthenticated(INVALID_CODE, code="second_factor_wrong")
        self.throttle.forgive(gate)
        self.second_factors.remove(user_id, actor=user_id)

    def confirm_second_factor(self, user_id: str, code: str, current_session: str) -> list[str]:
        """Enable a second factor and return the recovery codes. Raises as `SecondFactors.confirm`, and RateLimited."""
        gate = ThrottleGate("second factor, confirmed", user_id, KNOWN, ATTEMPT_WINDOW_S)
        self.throttle.take(gate)
        codes = self.second_factors.confirm(user_id, code, current_session)
        self.throttle.forgive(gate)
        return codes

    def remove_passkey(self, user_id: str, passkey_id: str) -> None:
        """Remove a passkey. Raises NotFound, or Conflict for the last one while it is the second factor."""
        own = self.passkeys.list_passkeys(user_id)
        if [passkey.id for passkey in own] == [passkey_id] and self.second_factors.find(user_id).by_passkey:
            raise Conflict("This passkey is your second factor. Remove the second factor first.")
        self.passkeys.remove(user_id, passkey_id)

    def enable_passkey_factor(self, user_id: str, current_session: str) -> list[str]:
        """Ask for a passkey after the password from now on, and return the recovery codes. Raises NotFound (no
        passkey) or Conflict."""
        if not self.passkeys.list_passkeys(user_id):
            raise NotFound("Add a passkey first.")
        return self.second_factors.enable_for_passkeys(user_id, current_session)

    def find_device(self, user_code: str, user_id: str) -> DeviceRequest:
        """Return the request of a device by its code. Raises NotFound, or RateLimited against guessing."""
        self.throttle.take(ThrottleGate("device codes, looked up", user_id, DEVICE_DECISIONS, MINUTE_S))
        return self.devices.find(user_code)

    def approve_device(
        self, user_code: str, user_id: str, workspace: agent_sign_in.Workspace, sso_login: str = ""
    ) -> DeviceRequest:
        """Approve a device; the `workspace` is for coding agents. Raises NotFound, Conflict (already decided),
        RateLimited, and as `AgentSignIn.approve`."""
        self._count_decision(user_id)
        if self.devices.find(user_code).client == agent_sign_in.CLIENT:
            return self.agent_sign_in.approve(user_code, user_id, workspace)
        return self.devices.decide(user_code, user_id, True, sso_login)

    def deny_device(self, user_code: str, user_id: str) -> DeviceRequest:
        """Deny a device. Raises NotFound, Conflict (already decided) or RateLimited."""
        self._count_decision(user_id)
        return self.devices.decide(user_code, user_id, False)

    def create_organization(self, name: str, user_id: str, email: str) -> organizations.OrganizationInfo:
        """Create an organization with a first project, owned by a user. Raises InvalidRequest."""
        name = organizations.read_name(name)
        organization_id = ids.new("org")
        project_id = ids.new("proj")
        values = projects.first_values("Default", self._defaults)
        new_ids = (ids.new("member"), user_id)

        def work(now: int) -> organizations.OrganizationInfo:
            members.check_quota(user_id, self._limits.max_organizations)
            info = organizations.insert_organization(organization_id, name, actor=user_id, now=now)
            projects.insert_project(project_id, organization_id, values, actor=user_id, now=now)
            members.insert_member(
                new_ids, organization_id, email, "owner", name="", password_hash="", actor=user_id, now=now
            )
            insert_default_limits(self._database, self._control, organization_id, self._defaults.limits, now)
            return info

        return commit(self._database, self._control, work, confirm=False)

    def create_project(
        self, organization_id: str, name: str, mode: str, *, actor: str, claim: ClientIdClaim | None = None
    ) -> projects.ProjectInfo:
        """Create a project. Raises InvalidRequest (name, mode, code project_cap_reached) or NotFound."""
        maximum = self._limits.max_projects
        return projects.create_project(
            self._database,
            self._control,
            organization_id,
            name,
            mode=mode,
            maximum=maximum,
            defaults=self._defaults,
            actor=actor,
            claim=claim,
        )

    def create_key(
        self, draft: keys.Draft, limits: Limits, *, actor: str, claim: ClientIdClaim | None = None
    ) -> keys.NewKey:
        """Create a key with its limits in one transaction. Limits and expiry of a key for another member are held by
        `actor`, unless it is the operator.

        Raises InvalidRequest (code key_cap_reached: too many active keys), NotFound (project, member) or Conflict.
        """
        description = keys.read_description(draft.description)
        check_within_member(self.budgets, draft.member_id, limits)
        key_id = ids.new("key")
        token = tokens_module.make(draft.kind)

        def work(now: int) -> keys.NewKey:
            key = keys.insert(
                self._hash_keys, draft, key_id, token, description=description, actor=actor, now=now, caps=self._caps
            )
            if limits != Limits() and actor in (key.info.creator_id, OPERATOR):
                self.budgets.write_limits(KEY, key_id, limits)
            elif limits != Limits():
                place = (KEY, key_id, key.info.organization_id)
                self._funding.write_limits(*place, lambda before: limits, setter=actor, actor=actor, now=now)
            if actor not in (key.info.creator_id, OPERATOR):
                hold_new_expiry(self._database, key.info, actor)
            client_ids.insert(claim, key_id, now)
            return key

        return commit(self._database, self._control, work, confirm=False)

    def create_workload_identity(
        self, draft: WorkloadIdentityDraft, limits: Limits, *, actor: str, claim: ClientIdClaim | None = None
    ) -> WorkloadIdentityInfo:
        """Create a workload identity with the limits of its key. Raises as `WorkloadIdentities.create`."""

        def write_limits(key_id: str) -> None:
            if limits != Limits():
                self.budgets.write_limits(KEY, key_id, limits)

        return self.workload_identities.create(draft, write_limits, actor=actor, claim=claim)

    def update_key(self, key: keys.KeyInfo, change: keys.Change, *, actor: str) -> keys.KeyInfo:
        """Change a key. Raises as `keys.update`, and Forbidden as `key_setters.hold_key`."""

        def check(before: keys.KeyInfo) -> None:
            hold_key(self._database, before, change, actor)

        return keys.update(self._database, self._control, key.id, change, actor=actor, caps=self._caps, check=check)

    def find_key_caps(self, organization_id: str) -> tuple[key_caps.OwnCaps, key_caps.KeyCaps]:
        """Return an organization's own caps on active keys, and the caps in force. Raises NotFound."""
        own = key_caps.find_caps(self._database, organization_id)
        return own, own.over(self._caps)

    def find_key_cap_usage(self, organization_id: str, member_id: str = "") -> key_caps.CapUsage:
        """Return the number of active keys and its cap; with `member_id` for the cap that limits this member first."""
        return key_caps.find_cap_usage(self._database, organization_id, member_id, self._caps)

    def set_key_caps(self, organization_id: str, caps: key_caps.OwnCaps, *, actor: str) -> None:
        """Replace an organization's own caps on active keys. Raises NotFound or InvalidRequest."""
        key_caps.set_caps(self._database, self._control, organization_id, caps, actor=actor)

    def roll_key(self, key_id: str, *, actor: str) -> keys.NewKey:
        return keys.roll(self._database, self._control, self._hash_keys, key_id, actor=actor)

    def set_key_limits(self, key: keys.KeyInfo, edit: LimitEdit, *, actor: str) -> None:
        """Change a key's limits; they are in force on return. Raises InvalidRequest for limits above the owner's."""

        def checked(before: Limits) -> Limits:
            limits = edit(before)
            check_within_member(self.budgets, key.member_id, limits)
            return limits

        self._funding.set_limits(KEY, key.id, key.organization_id, checked, actor=actor)

    def set_member_limits(self, member: members.MemberInfo, edit: LimitEdit, *, actor: str) -> None:
        """Change a member's limits; they are in force on return."""
        self._funding.set_limits(MEMBER, member.id, member.organization_id, edit, actor=actor)

    def set_team_limits(self, team: TeamInfo, edit: LimitEdit, *, actor: str) -> None:
        """Change a team's limits; they are in force on return. Raises NotFound if the team was deleted."""
        self._funding.set_limits(TEAM, team.id, team.organization_id, edit, actor=actor)

    def set_unlimited(self, organization_id: str, unlimited: bool, *, actor: str) -> None:
        """Set whether an organization may spend without credits."""
        self._funding.set_unlimited(organization_id, unlimited, actor=actor)

    def post_credits(self, organization_id: str, posting: Posting, *, actor: str) -> bool:
        """Add credits, or subtract them by an adjustment. Return False for a reference that was posted before."""
        return self._funding.post_credits(organization_id, posting, actor=actor)

    def _count_decision(self, user_id: str) -> None:
        self.throttle.take(
            ThrottleGate("device codes, decided", user_id, DEVICE_DECISIONS, MINUTE_S),
            ThrottleGate("device codes, decided in a day", user_id, DAY_DECISIONS, DAY_S),
        )
