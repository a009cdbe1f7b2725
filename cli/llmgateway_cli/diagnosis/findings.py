"""A finding of `doctor`."""

from dataclasses import asdict, dataclass

from llmgateway_cli.errors import CliError

OK = "ok"
WARNING = "warning"
ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `status` is ok, warning or error, and `remedy` says what to do."""

    check: str
    status: str
    message: str
    remedy: str = ""

    @property
    def document(self) -> dict[str, str]:
        return asdict(self)


def failed(check: str, error: CliError) -> Finding:
    """Return the finding of a check that could not be completed."""
    request = f" Request id: {error.request_id}." if error.request_id else ""
    return Finding(check, ERROR, error.message + request, error.remedy)
