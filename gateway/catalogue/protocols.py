"""The protocols that catalogue entries may name, each with what is usual for it where an entry does not say it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProtocolEntry:
    """`auth` is how a key is sent, `version_path` where an address ends that a provider's entry leaves out.

    `max_inputs` is how many texts one call embeds, `max_images` how many images one makes, `max_streamed_n` how many
    answers of a chat one streams (0: not known).
    """

    auth: str = "bearer"
    version_path: str = ""
    max_inputs: int = 0
    max_images: int = 0
    max_streamed_n: int = 0


# What carries a protocol out is in `providers/registry.py`; for "prediction" there is nothing yet.
PROTOCOLS: dict[str, ProtocolEntry] = {
    "openai": ProtocolEntry(version_path="/v1", max_inputs=2048),
    "openai-responses": ProtocolEntry(version_path="/v1"),
    "anthropic": ProtocolEntry("x-api-key", "/v1"),
    "google": ProtocolEntry("x-goog-api-key", "/v1beta", 100, max_images=1, max_streamed_n=1),
    "bedrock": ProtocolEntry("sigv4"),
    "cohere": ProtocolEntry(max_inputs=96),
    "prediction": ProtocolEntry(),
    "dashscope": ProtocolEntry(version_path="/api/v1", max_images=1),
    "deepinfra": ProtocolEntry(version_path="/v1"),
    "elevenlabs": ProtocolEntry("xi-api-key"),
    "xai": ProtocolEntry(version_path="/v1"),
    "bytedance": ProtocolEntry(version_path="/api/v3"),
    "minimax": ProtocolEntry(version_path="/v1"),
    "atlascloud": ProtocolEntry(version_path="/api/v1"),
    "sandbox": ProtocolEntry("none", max_inputs=2048),
}
