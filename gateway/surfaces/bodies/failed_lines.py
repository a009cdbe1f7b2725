"""The error in the answer to a line of a batch, in the form that every dialect has."""

from msgspec import MsgspecError, Struct, json


class Failure(Struct):
    """An error; each dialect has its own members of these."""

    code: str | None = None
    type: str | None = None
    message: str | None = None


class FailureBody(Struct):
    """The body of an answer with an error."""

    error: Failure | None = None


BODY = json.Decoder(FailureBody)


def read_failure(body: bytes) -> Failure:
    """Return the error in the body of an answer, an empty one for any other body."""
    try:
        return BODY.decode(body).error or Failure()
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return Failure()
