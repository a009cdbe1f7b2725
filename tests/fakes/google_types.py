"""The types that the `google-genai` package publishes for a request, with further fields that the service accepts."""

from google.genai import types
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Generation(types.GenerationConfig):
    """The published type with further fields that the service accepts."""

    image_config: types.ImageConfig | None = None


class Request(BaseModel):
    """GenerateContentRequest (API reference)."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, val_json_bytes="base64")

    contents: list[types.Content]
    system_instruction: types.Content | None = None
    tools: list[types.Tool] | None = None
    tool_config: types.ToolConfig | None = None
    safety_settings: list[types.SafetySetting] | None = None
    generation_config: Generation | None = None
    cached_content: str | None = None
    service_tier: str | None = None
