"""The connection to the gateway: its address and an API key, from the environment or from .env.local."""

import os
from pathlib import Path

from dotenv import load_dotenv
from openai import OpenAI

load_dotenv(Path(__file__).with_name(".env.local"))


def connect() -> OpenAI:
    """Return a client of the gateway."""
    key = os.environ.get("LLMGATEWAY_API_KEY")
    if not key:
        raise SystemExit("Set LLMGATEWAY_API_KEY in .env.local. `llmgateway keys create` makes a key.")
    return OpenAI(base_url=os.environ["LLMGATEWAY_BASE_URL"], api_key=key)
