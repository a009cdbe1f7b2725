"""The types that the `google-genai` package publishes for messages of the Live API."""

from typing import Any

from google.genai import _live_converters as converters
from google.genai import types
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Setup(types.LiveClientSetup):
    """The published type with the fields that its converters add."""

    realtime_input_config: types.RealtimeInputConfig | None = None


class ClientMessage(BaseModel):
    """BidiGenerateContentClientMessage (API reference): exactly one of these."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, val_json_bytes="base64")

    setup: Setup | None = None
    client_content: types.LiveClientContent | None = None
    realtime_input: types.LiveClientRealtimeInput | None = None
    tool_response: types.LiveClientToolResponse | None = None
    context_update: types.LiveClientContextUpdate | None = None


def check_answer(message: dict[str, Any]) -> None:
    """Raise ValidationError for a message that the package could not read."""
    parsed = converters._LiveServerMessage_from_mldev(message)
    types.LiveServerMessage._from_response(response=parsed, kwargs={})
