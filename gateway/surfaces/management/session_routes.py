"""`/auth`: the visitor's own sessions and second factor."""

from functools import partial

from gateway.surfaces.management.access_groups import SIGNED_IN
from gateway.surfaces.management.answers import DoneAnswer
from gateway.surfaces.management.list_pages import ListPageQuery
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.management.sign_in_answers import NewSecondFactorAnswer, OwnSessionAnswer, SecondFactorAnswer
from gateway.surfaces.visitors.validation_schemas import Body, TextField
from gateway.surfaces.web.http import Operation

TAG = "Sign-in"
MAX_PASSWORD_LENGTH = 1024
MAX_CODE_LENGTH = 64


class Password(Body):
    password = TextField(1, MAX_PASSWORD_LENGTH, required=True)


class Code(Body):
    code = TextField(1, MAX_CODE_LENGTH, required=True)


class PasswordAndCode(Body):
    password = TextField(1, MAX_PASSWORD_LENGTH, required=True)
    code = TextField(1, MAX_CODE_LENGTH, required=True)


def list_sessions(call: ManagedCall[None]) -> list[OwnSessionAnswer]:
    """Your active sessions, newest first."""
    return [
        OwnSessionAnswer.of(session, current=session.id == call.visitor.session.id, last_used_at=session.used_at_us)
        for session in call.page.read(partial(call.management.sessions.list_sessions, call.actor))
    ]


def end_session(call: ManagedCall[None]) -> None:
    """Its token is refused from then on; ending the current session signs you out."""
    call.management.sessions.close_one(call.actor, call.params["session_id"])


def sign_out_everywhere(call: ManagedCall[None]) -> DoneAnswer:
    """End all your sessions, including this one, and pending sign-ins of devices."""
    count = call.management.sessions.close_others(call.actor)
    return DoneAnswer(f"Signed out everywhere: {count} sessions ended.")


def show_factor(call: ManagedCall[None]) -> SecondFactorAnswer:
    """Whether a second factor is enabled, and how many recovery codes are left; never its secret."""
    factor = call.management.second_factors.find(call.actor)
    return SecondFactorAnswer.of(
        factor, since=factor.since_us if factor.active else None, recovery_codes_left=factor.codes_left
    )


def begin_factor(call: ManagedCall[None]) -> NewSecondFactorAnswer:
    """A new secret for an authenticator app; enabled once a code from it is confirmed."""
    session = call.visitor.session
    call.management.check_password(session.user_id, session.email, call.fields["password"])
    return NewSecondFactorAnswer.of(call.management.second_factors.begin(session.user_id, session.email))


def confirm_factor(call: ManagedCall[None]) -> list[str]:
    """Enable it; the recovery codes are shown only in this response. Every other session ends."""
    return call.management.confirm_second_factor(call.actor, call.fields["code"], call.visitor.session.id)


def remove_factor(call: ManagedCall[None]) -> None:
    """Disable the second factor; requires the password and a code (or a recovery code)."""
    session = call.visitor.session
    call.management.remove_second_factor(session.user_id, session.email, call.fields["password"], call.fields["code"])


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/auth/sessions", list_sessions, "List your sessions", tag=TAG, who=SIGNED_IN,
            query=ListPageQuery, inside="sessions"),
    managed("DELETE", "/auth/sessions/<session_id>", end_session, "End one of your sessions", tag=TAG, who=SIGNED_IN,
            message="Session ended.", audit="session.delete"),
    managed("POST", "/auth/sign-out-everywhere", sign_out_everywhere, "Sign out everywhere", tag=TAG, who=SIGNED_IN,
            audit="session.delete_others"),
    managed("GET", "/auth/second-factor", show_factor, "Show your second factor", tag=TAG, who=SIGNED_IN),
    managed("POST", "/auth/second-factor", begin_factor, "Set up a second factor", tag=TAG, who=SIGNED_IN,
            request=Password),
    managed("POST", "/auth/second-factor/confirm", confirm_factor, "Confirm a second factor", tag=TAG, who=SIGNED_IN,
            request=Code, inside="recoveryCodes", audit="second_factor.create"),
    managed("POST", "/auth/second-factor/remove", remove_factor, "Remove your second factor", tag=TAG, who=SIGNED_IN,
            request=PasswordAndCode, message="The second factor was removed.",
            audit=("second_factor.delete", "second_factor.use_recovery_code")),
)  # fmt: skip
