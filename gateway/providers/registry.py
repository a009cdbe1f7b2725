"""Every upstream protocol, by the name that catalogue entries use."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.clock import Clock
from gateway.configuration.settings import Timeouts
from gateway.providers.alibaba.images import AlibabaImages
from gateway.providers.alibaba.videos import AlibabaVideos
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.providers.atlascloud import videos as atlascloud
from gateway.providers.atlascloud.videos import AtlasCloudVideos
from gateway.providers.bedrock.converse import BedrockConverse
from gateway.providers.bytedance import videos as bytedance
from gateway.providers.bytedance.videos import ByteDanceVideos
from gateway.providers.cohere.chat import CohereChat
from gateway.providers.cohere.embeddings import CohereEmbeddings
from gateway.providers.cohere.rerank import CohereRerank
from gateway.providers.deepinfra import rerank as deepinfra
from gateway.providers.deepinfra.rerank import DeepInfraRerank
from gateway.providers.elevenlabs import speech as elevenlabs
from gateway.providers.elevenlabs.speech import ElevenLabsSpeech
from gateway.providers.failures import upstream_failure
from gateway.providers.google.embeddings import GoogleEmbeddings
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.google.images import GoogleImages
from gateway.providers.google.live.session_opener import GoogleRealtime
from gateway.providers.google.service_account_tokens import AccessTokens, fetch_over
from gateway.providers.google.speech import GoogleSpeech
from gateway.providers.google.videos import GoogleVideos
from gateway.providers.minimax import videos as minimax
from gateway.providers.minimax.videos import MiniMaxVideos
from gateway.providers.openai.address import Tokens
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.openai.embeddings import OpenAIEmbeddings
from gateway.providers.openai.images import OpenAIImages
from gateway.providers.openai.realtime import OpenAIRealtime
from gateway.providers.openai.rerank import OpenAIRerank
from gateway.providers.openai.responses import OpenAIResponses
from gateway.providers.openai.speech import OpenAISpeech
from gateway.providers.openai.structured import OpenAIStructured, fit_moderations, mend_moderations
from gateway.providers.openai.transcriptions import OpenAITranscriptions
from gateway.providers.openai.videos import OpenAIVideos
from gateway.providers.openers import Local, Network
from gateway.providers.protocol import ChatCodec, Codec, JobCodec, Wire
from gateway.providers.sandbox.sandbox_server import SandboxServer
from gateway.providers.upstream import Upstreams
from gateway.providers.video_codecs import job_failure
from gateway.providers.xai import videos as xai
from gateway.providers.xai.videos import XaiVideos
from gateway.runtime.threads import pause
from gateway.transport import Transport


@dataclass(frozen=True, slots=True)
class Resources:
    """What protocols are made from: the network, the clock, access tokens of service accounts, and the folder of large
    files ("": the system's own)."""

    transport: Transport
    clock: Clock
    token: Tokens
    spool_dir: str = ""


# How each of `catalogue/protocols.py` is made, one line each. The sandbox uses the format of the provider that it
# imitates.
FACTORIES: dict[str, Callable[[Resources], Wire]] = {
    "openai": lambda given: _openai("openai", given.token),
    "sandbox": lambda given: _openai("sandbox", None),
    "openai-responses": lambda given: chat_wire("openai-responses", OpenAIResponses(given.token)),
    "anthropic": lambda given: chat_wire("anthropic", AnthropicMessages(given.token)),
    "google": lambda given: _google(GoogleGenerate(given.token), given.spool_dir),
    "bedrock": lambda given: chat_wire("bedrock", BedrockConverse(given.clock)),
    "cohere": lambda given: chat_wire("cohere", CohereChat(), embeddings=CohereEmbeddings(), rerank=CohereRerank()),
    "dashscope": lambda given: _dashscope(AlibabaImages(given.transport)),
    "deepinfra": lambda given: Wire("deepinfra", deepinfra.NAME, upstream_failure, {"rerank": DeepInfraRerank()}),
    "elevenlabs": lambda given: Wire("elevenlabs", elevenlabs.NAME, upstream_failure, {"speech": ElevenLabsSpeech()}),
    "xai": lambda given: _videos(xai.NAME, XaiVideos(given.token)),
    "bytedance": lambda given: _videos(bytedance.NAME, ByteDanceVideos(given.token)),
    "minimax": lambda given: _videos(minimax.NAME, MiniMaxVideos(given.token)),
    "atlascloud": lambda given: _videos(atlascloud.NAME, AtlasCloudVideos(given.token)),
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
        videos=OpenAIVideos(token),
        realtime=OpenAIRealtime(token),
    )


def _dashscope(images: AlibabaImages) -> Wire:
    codecs: dict[str, Codec] = {"images": images, "image_edits": images, "videos": AlibabaVideos()}
    return Wire("dashscope", images.dialect, job_failure, codecs)


def _videos(name: str, videos: JobCodec) -> Wire:
    return Wire(name, name, job_failure, {"videos": videos})


def _google(chat: GoogleGenerate, spool_dir: str) -> Wire:
    embeddings = GoogleEmbeddings(chat.authorize)
    speech = GoogleSpeech(chat.authorize)
    images = GoogleImages(chat.authorize)
    videos = GoogleVideos(chat.authorize, spool_dir)
    return chat_wire(
        "google",
        chat,
        embeddings=embeddings,
        speech=speech,
        images=images,
        image_edits=images,
        videos=videos,
        realtime=GoogleRealtime(chat.authorize),
    )


def chat_wire(name: str, chat: ChatCodec, **others: Codec) -> Wire:
    """A protocol around its chat codec, which supplies failures, marks and losses; `others` are further operations."""
    return Wire(name, chat.dialect, chat.failure, {"chat": chat, **others}, chat.marks, chat.lost)


def make_protocols(transport: Transport, clock: Clock, spool_dir: str = "") -> dict[str, Wire]:
    """One stateless object for each protocol."""
    given = Resources(transport, clock, AccessTokens(fetch_over(transport), clock).token, spool_dir)
    return {name: make(given) for name, make in FACTORIES.items()}


def make_upstreams(wires: dict[str, Wire], transport: Transport, clock: Clock, timeouts: Timeouts) -> Upstreams:
    """Calls go over the network, except for the sandbox's, which is in this process."""
    sandbox = Local(SandboxServer(clock, pause), timeouts.wake_s)
    return Upstreams(wires, Network(transport), {"sandbox": sandbox}, timeouts.wake_s, transport)
