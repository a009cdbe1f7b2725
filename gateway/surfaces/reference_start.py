"""The first section of the API reference: base URL, authentication, and a first request in three languages."""

from typing import Any

from gateway.surfaces.code_samples import SampleRequest, write_curl, write_python, write_typescript
from gateway.surfaces.examples import JSON

# The page puts the address at which it was opened in its place.
EXAMPLE_ADDRESS = "http://127.0.0.1:4001"
FIRST_REQUEST = SampleRequest(
    "POST",
    "/v1/chat/completions",
    "LLMGATEWAY_API_KEY",
    JSON,
    {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}]},
)
START = f"""## Start here

* Base URL: `{EXAMPLE_ADDRESS}`. SDKs of OpenAI take `{EXAMPLE_ADDRESS}/v1`, those of Anthropic and Google the base URL.
* Authentication: `Authorization: Bearer $LLMGATEWAY_API_KEY`, or the same key as `x-api-key`. You create keys in the
  [console](console/keys).
* Errors: a status and `{{"error": {{"message", "type", "param", "code"}}}}`. `x-request-id` names the request.

```shell
export LLMGATEWAY_GATEWAY_URL={EXAMPLE_ADDRESS}
export LLMGATEWAY_API_KEY=llmgtwy_…
```

## First request

With curl:

```shell
{write_curl(FIRST_REQUEST)}
```

In Python, with `pip install requests`:

```python
{write_python(FIRST_REQUEST)}
```

In TypeScript, with Node.js:

```typescript
{write_typescript(FIRST_REQUEST)}
```

The model `auto` lets the gateway choose. Every answer names its cost in `usage.cost`, in USD. The
[guides](docs/guides) lead on."""


def with_start(document: dict[str, Any]) -> dict[str, Any]:
    """Return the API description with the section before all others."""
    info = document["info"]
    introduction, _, policy = info["description"].partition("\n\n")
    return {**document, "info": {**info, "description": f"{introduction}\n\n{START}\n\n{policy}"}}
