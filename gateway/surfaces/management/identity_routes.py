"""`/auth/identities`: the visitor's accounts at identity providers."""

from gateway.accounts import identities
from gateway.accounts.identities import LinkedIdentity
from gateway.surfaces.management.access_groups import SIGNED_IN
from gateway.surfaces.management.answers import IdentityAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.web.http import Operation


def list_own(call: ManagedCall[None]) -> list[IdentityAnswer]:
    """Your connected accounts at identity providers, oldest first. A person is known there by issuer and subject, not
    by an e-mail address."""
    return [show_identity(identity) for identity in identities.list_identities(call.database, call.actor)]


def disconnect(call: ManagedCall[None]) -> None:
    """Disconnect an identity: its sessions end, and it opens your account no more."""
    call.visitor.check_account_access()
    identities.unlink(call.database, call.actor, call.params["identity_id"])


def show_identity(identity: LinkedIdentity) -> IdentityAnswer:
    """Return an identity as the API shows it."""
    return IdentityAnswer.of(
        identity, organization_id=identity.organization_id or None, last_used_at=identity.used_at_us
    )


TAG = "Sign-in"
OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/auth/identities", list_own, "List your connected identities", tag=TAG, who=SIGNED_IN,
            inside="identities"),
    managed("DELETE", "/auth/identities/<identity_id>", disconnect, "Disconnect an identity", tag=TAG, who=SIGNED_IN,
            message="The identity was disconnected.", audit="identity.unlink"),
)  # fmt: skip
