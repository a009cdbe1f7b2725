"""The API key of commands that call models: the error without one, and the check of a new one before it is stored."""

from llmgateway_cli.context import ClientContext
from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.sessions import stored_session
from llmgateway_cli.settings import API_KEY, KEY_VARIABLE

CHECK_TIMEOUT_S = 10.0
UNAUTHORIZED = 401
NOT_FOUND = 404


def missing_key(context: ClientContext) -> CliError:
    """Return the error of a command without a key. A signed-in person can make one."""
    remedy = f"Set {KEY_VARIABLE}, or store a key with `llmgateway auth login --key`."
    if stored_session(context.settings) is not None:
        remedy = f"`llmgateway keys create -d TEXT` makes one and stores it here. Or: {remedy[0].lower()}{remedy[1:]}"
    return CliError("There is no API key.", remedy)


def require_key(context: ClientContext) -> str:
    """Return the API key of the settings. Raises CliError without one."""
    if not context.settings.api_key:
        raise missing_key(context)
    return context.settings.api_key


def store_checked_key(context: ClientContext, key: str, more: dict[str, str] | None = None) -> None:
    """Store a typed key, with other settings. Raises CliError if the service refuses it; without an answer the key is
    stored."""
    try:
        context.client.gateway("GET", "/v1/key", key=key, timeout_s=CHECK_TIMEOUT_S)
    except HttpError as error:
        if error.status == UNAUTHORIZED:
            raise CliError(
                f"{context.settings.gateway_url} refuses this API key: {error.message}",
                "Copy it again. It was not stored.",
                error.request_id,
            ) from None
        if error.status != NOT_FOUND:
            context.output.warning(f"The service reports: {error.message}")
    except CliError as error:
        context.output.warning(f"The API key could not be checked. {error.message}")
    context.settings.save({**(more or {}), API_KEY: key})
    context.output.success(f"The API key was stored in {context.settings.config_file}.")
