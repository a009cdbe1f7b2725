"""Every upstream protocol, by the name that catalogue entries use."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.clock import Clock
from gateway.providers.alibaba.images import AlibabaImages
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.providers.bedrock.converse import BedrockConverse
from gateway.providers.cohere.chat import CohereChat
from gateway.providers.cohere.embeddings import CohereEmbeddings
from gateway.providers.cohere.rerank import CohereRerank
from gateway.providers.deepinfra import rerank as deepinfra
from gateway.providers.deepinfra.rerank import DeepInfraRerank
from gateway.providers.elevenlabs import speech as elevenlabs
from gateway.providers.elevenlabs.speech import ElevenLabsSpeech
from gateway.providers.failures import upstream_failure
from gateway.providers.google.auth import AccessTokens, fetch_over
from gateway.providers.google.embeddings import GoogleEmbeddings
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.google.images import GoogleImages
from gateway.providers.google.speech import GoogleSpeech
from gateway.providers.openai.address import Tokens
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.openai.embeddings import OpenAIEmbeddings
from gateway.providers.openai.images import OpenAIImages
from gateway.providers.openai.rerank import OpenAIRerank
from gateway.providers.openai.responses import OpenAIResponses
from gateway.providers.openai.speech import OpenAISpeech
from gateway.providers.openai.structured import OpenAIStructured, fit_moderations, mend_moderations
from gateway.providers.openai.transcriptions import OpenAITranscriptions
from gateway.providers.openers import Local, Network
from gateway.providers.protocol import ChatCodec, Codec, Wire
from gateway.providers.sandbox.server import SandboxServer
from gateway.providers.upstream import Upstreams
from gateway.settings import Timeouts
from gateway.threads import pause
from gateway.transport import Transport


@dataclass(frozen=True, slots=True)
class Resources:
    """What protocols are made from: the network, the clock, and access tokens of service accounts."""

    transport: Transport
    clock: Clock
    token: Tokens


# How each of `catalogue/protocols.py` is made, one line each. The sandbox uses the format of the provider that it
# imitates.
FACTORIES: dict[str, Callable[[Resources], Wire]] = {
    "openai": lambda given: _openai("openai", given.token),
    "sandbox": lambda given: _openai("sandbox", None),
    "openai-responses": lambda given: chat_wire("openai-responses", OpenAIResponses(given.token)),
    "anthropic": lambda given: chat_wire("anthropic", AnthropicMessages(given.token)),
    "google": lambda given: _google(GoogleGenerate(given.token)),
    "bedrock": lambda given: chat_wire("bedrock", BedrockConverse(given.clock)),
    "cohere": lambda given: chat_wire("cohere", CohereChat(), embeddings=CohereEmbeddings(), rerank=CohereRerank()),
    "dashscope": lambda given: _dashscope(AlibabaImages(given.transport)),
    "deepinfra": lambda given: Wire("deepinfra", deepinfra.NAME, upstream_failure, {"rerank": DeepInfraRerank()}),
    "elevenlabs": lambda given: Wire("elevenlabs", elevenlabs.NAME, upstream_failure, {"speech": ElevenLabsSpeech()}),
}


def _openai(name: str, token: Tokens | None) -> Wire:
    return chat_wire(
        name,
        OpenAIChat(token),
        embeddings=OpenAIEmbeddings(token),
        speech=OpenAISpeech(token),
        images=OpenAIImages(token),
        image_edits=OpenAIImages(token),
        rerank=OpenAIRerank(token),
        moderations=OpenAIStructured("/moderations", "results", token, fit_moderations, mend_moderations),
        ocr=OpenAIStructured("/ocr", "pages", token),
        decisions=OpenAIStructured("/systemone", "answers", token),
        transcriptions=OpenAITranscriptions("/audio/transcriptions", token),
        translations=OpenAITranscriptions("/audio/translations", token),
    )


def _dashscope(images: AlibabaImages) -> Wire:
    return Wire("dashscope", images.dialect, upstream_failure, {"images": images, "image_edits": images})


def _google(chat: GoogleGenerate) -> Wire:
    embeddings, speech = GoogleEmbeddings(chat.authorize), GoogleSpeech(chat.authorize)
    images = GoogleImages(chat.authorize)
    return chat_wire("google", chat, embeddings=embeddings, speech=speech, images=images, image_edits=images)


def chat_wire(name: str, chat: ChatCodec, **others: Codec) -> Wire:
    """A protocol around its chat codec, which supplies failures, marks and losses; `others` are further operations."""
    return Wire(name, chat.dialect, chat.failure, {"chat": chat, **others}, chat.marks, chat.lost)


def make_protocols(transport: Transport, clock: Clock) -> dict[str, Wire]:
    """One stateless object for each protocol."""
    given = Resources(transport, clock, AccessTokens(fetch_over(transport), clock).token)
    return {name: make(given) for name, make in FACTORIES.items()}


def make_upstreams(wires: dict[str, Wire], transport: Transport, clock: Clock, timeouts: Timeouts) -> Upstreams:
    """Calls go over the network, except for the sandbox's, which is in this process."""
    sandbox = Local(SandboxServer(clock, pause), timeouts.wake_s)
    return Upstreams(wires, Network(transport), {"sandbox": sandbox}, timeouts.wake_s, transport)
