"""Every wire format that upstreams may speak, by the name that catalogue entries use."""

from gateway.clock import Clock
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.providers.bedrock.converse import BedrockConverse
from gateway.providers.cohere.chat import CohereChat
from gateway.providers.google.auth import AccessTokens, fetch_over
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.openai.responses import OpenAIResponses
from gateway.providers.openers import Local, Network
from gateway.providers.protocol import Protocol
from gateway.providers.sandbox.server import SandboxServer
from gateway.providers.upstream import Upstreams
from gateway.settings import Timeouts
from gateway.threads import pause
from gateway.transport import Transport


def make_protocols(transport: Transport, clock: Clock) -> dict[str, Protocol]:
    """One stateless object for each protocol. The sandbox speaks the words of the one that it imitates."""
    tokens = AccessTokens(fetch_over(transport), clock)
    chat = OpenAIChat(tokens.token)
    return {
        "openai": chat,
        "sandbox": chat,
        "openai-responses": OpenAIResponses(tokens.token),
        "anthropic": AnthropicMessages(tokens.token),
        "google": GoogleGenerate(tokens.token),
        "bedrock": BedrockConverse(clock),
        "cohere": CohereChat(),
    }


def make_upstreams(protocols: dict[str, Protocol], transport: Transport, clock: Clock, timeouts: Timeouts) -> Upstreams:
    """Calls go over the network, but for the sandbox's, which is in this process."""
    sandbox = Local(SandboxServer(clock, pause), timeouts.wake_s)
    return Upstreams(protocols, Network(transport), {"sandbox": sandbox}, timeouts.wake_s, transport)
