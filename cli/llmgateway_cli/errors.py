"""The error that a command reports to the user, and the exit codes."""

SUCCESS = 0
REFUSED = 1
USAGE = 2
INTERRUPTED = 130


class CliError(Exception):
    """A command failed: `message` says what happened, `remedy` what to do next.

    `request_id` is the id by which the service's operator finds the request in the log.
    """

    def __init__(self, message: str, remedy: str = "", request_id: str = "", exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.request_id = request_id
        self.exit_code = exit_code


class HttpError(CliError):
    """The service answered with an error status; `code` is the error's code in the answer, "" without one."""

    def __init__(self, status: int, message: str, remedy: str = "", request_id: str = "", code: str = "") -> None:
        super().__init__(message, remedy, request_id)
        self.status = status
        self.code = code


class SignedOut(CliError):
    """There is no session, or the service no longer accepts it."""
