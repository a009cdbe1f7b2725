"""The check of an API key with one token of a cheap model, before an agent starts with it."""

from typing import TYPE_CHECKING

from llmgateway_cli.errors import CliError, HttpError

if TYPE_CHECKING:
    from llmgateway_cli.http_client import ApiClient
    from llmgateway_cli.output import Output

CHECK_MODEL = "gpt-5.4-nano"
CHECK_TIMEOUT_S = 10.0


def check_key(client: "ApiClient", output: "Output", key: str, source: str) -> None:
    """Send one request with the key. Raises CliError if the key is invalid; everything else is a notice, because the
    agent reports the same."""
    body = {"model": CHECK_MODEL, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1}
    try:
        client.gateway("POST", "/v1/chat/completions", body=body, key=key, timeout_s=CHECK_TIMEOUT_S)
    except HttpError as error:
        if error.status == 401:
            raise CliError(
                f"The service refused the API key from {source}: {error.message}",
                "Create a key with `llmgateway keys create`, and store it with `llmgateway auth login --key`.",
                error.request_id,
            ) from None
        if error.status in (402, 403):
            output.warning(f"The key from {source} is valid, but the service reports: {error.message}")
        else:
            output.info(f"The key from {source} was not refused; the check with {CHECK_MODEL} got {error.status}.")
    except CliError as error:
        output.warning(f"The key from {source} could not be checked. {error.message}")
    else:
        output.info(f"The key from {source} is valid.")
