"""The protocols that catalogue entries may name, with default values for fields that an entry omits."""

from msgspec import Struct

from gateway.neutral.hosted_uses import HostedUse


class ProtocolEntry(Struct, frozen=True):
    """Defaults of a protocol. `auth` is how a key is sent, `version_path` is the end of an address without its own.

    `max_inputs` is the number of texts that one call embeds, `max_images` the number of images that one call
    generates, `max_streamed_n` the number of choices that one chat call streams (0: unknown). `hosted_tools`:
    each of its models may use the tools that its vendor runs, whose prices a provider states once; `tools_of` is the
    dialect in which requests name them.
    """

    auth: str = "bearer"
    version_path: str = ""
    max_inputs: int = 0
    max_images: int = 0
    max_streamed_n: int = 0
    hosted_tools: bool = False
    tools_of: str = ""


# Kinds of workload identities, with the settings of a provider that they discover. Implementations are in
# `providers/registry.py`.
IDENTITIES: dict[str, tuple[str, ...]] = {"aws": (), "entra": (), "google": ("project",)}

# Implementations are in `providers/registry.py`.
PROTOCOLS: dict[str, ProtocolEntry] = {
    "openai": ProtocolEntry(version_path="/v1", max_inputs=2048, tools_of="openai"),
    "openai-responses": ProtocolEntry(version_path="/v1", hosted_tools=True, tools_of="responses"),
    "anthropic": ProtocolEntry("x-api-key", "/v1", hosted_tools=True, tools_of="anthropic"),
    "google": ProtocolEntry(
        "x-goog-api-key", "/v1beta", 100, max_images=1, max_streamed_n=1, hosted_tools=True, tools_of="google"
    ),
    "bedrock": ProtocolEntry("sigv4"),
    "cohere": ProtocolEntry(max_inputs=96),
    "dashscope": ProtocolEntry(version_path="/api/v1", max_images=1),
    "deepinfra": ProtocolEntry(version_path="/v1"),
    "elevenlabs": ProtocolEntry("xi-api-key"),
    "xai": ProtocolEntry(version_path="/v1"),
    "bytedance": ProtocolEntry(version_path="/api/v3"),
    "minimax": ProtocolEntry(version_path="/v1"),
    "atlascloud": ProtocolEntry(version_path="/api/v1"),
    "sandbox": ProtocolEntry("none", max_inputs=2048, tools_of="openai"),
}


def uses_at(protocol: str, second: str, uses: tuple[HostedUse, ...]) -> tuple[HostedUse, ...]:
    """Return the uses of a request that a call of these protocols of a target has: others are left out of it."""
    spoken = {"", *(PROTOCOLS[name].tools_of for name in (protocol, second) if name in PROTOCOLS)}
    return tuple(use for use in uses if use.vendor in spoken)
