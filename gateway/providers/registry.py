"""Every upstream protocol, by the name that catalogue entries use."""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from gateway.clock import Clock
from gateway.configuration.settings import Timeouts
from gateway.providers import atlascloud, bytedance, deepinfra, elevenlabs, minimax, xai
from gateway.providers.alibaba import AlibabaImages, AlibabaVideos
from gateway.providers.anthropic.batches import AnthropicBatchApi
from gateway.providers.anthropic.files import AnthropicFileApi
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.providers.atlascloud import AtlasCloudVideos
from gateway.providers.background_calls import BackgroundApi
from gateway.providers.batches.batch_codec import BatchCodec
from gateway.providers.bedrock.converse import BedrockConverse
from gateway.providers.bytedance import ByteDanceVideos
from gateway.providers.cohere.chat import CohereChat
from gateway.providers.cohere.embeddings import CohereEmbeddings, CohereRerank
from gateway.providers.deepinfra import DeepInfraRerank
from gateway.providers.elevenlabs import ElevenLabsSpeech
from gateway.providers.failures import upstream_failure
from gateway.providers.files.file_codec import FileCodec
from gateway.providers.google.batches import GoogleBatchApi
from gateway.providers.google.embeddings import GoogleEmbeddings
from gateway.providers.google.files import GoogleFileApi
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.google.images import GoogleImages
from gateway.providers.google.live.live_session import GoogleRealtime
from gateway.providers.google.speech import GoogleSpeech
from gateway.providers.google.videos import GoogleVideos
from gateway.providers.identities.entra_tokens import EntraIdentity
from gateway.providers.identities.google_credentials import AccessTokens, GoogleIdentity, fetch_over
from gateway.providers.identities.role_credentials import AwsIdentity
from gateway.providers.identities.upstream_identity import IdentityCalls, TokenSource, UpstreamIdentities
from gateway.providers.media_codecs import job_failure
from gateway.providers.minimax import MiniMaxVideos
from gateway.providers.mistral import MistralBatchApi
from gateway.providers.openai.address import Tokens
from gateway.providers.openai.batches import AzureBatchApi, OpenAIBatchApi
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.openai.embeddings import OpenAIEmbeddings
from gateway.providers.openai.files import AzureFileApi, MistralFileApi, OpenAIFileApi
from gateway.providers.openai.images import OpenAIImages
from gateway.providers.openai.realtime import OpenAIRealtime
from gateway.providers.openai.responses import OpenAIResponses
from gateway.providers.openai.responses_background import ResponsesBackground
from gateway.providers.openai.speech import OpenAISpeech
from gateway.providers.openai.structured import OpenAIRerank, OpenAIStructured, fit_moderations, repair_moderations
from gateway.providers.openai.transcriptions import OpenAITranscriptions
from gateway.providers.openai.videos import OpenAIVideos
from gateway.providers.protocol import ChatCodec, Codec, JobCodec, WireFormat
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Local, LocalServer, Network
from gateway.providers.xai import XaiVideos
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import compute, pause
from gateway.transport import Transport

sandbox_server = LazyImport("gateway.providers.sandbox.sandbox_server")


class Resources(Struct, frozen=True):
    """Dependencies of protocols: the network, the clock, access tokens of service accounts, and the folder for large
    files ("": the system's temporary folder)."""

    transport: Transport
    clock: Clock
    token: Tokens
    spool_dir: str = ""


def _openai(name: str, uses_tokens: bool, resources: Resources) -> WireFormat:
    token = resources.token if uses_tokens else None
    return chat_wire(
        name,
        OpenAIChat(token),
        embeddings=OpenAIEmbeddings(token),
        speech=OpenAISpeech(token),
        images=OpenAIImages(token),
        image_edits=OpenAIImages(token),
        rerank=OpenAIRerank(token),
        moderations=OpenAIStructured("/moderations", "results", token, fit_moderations, repair_moderations),
        ocr=OpenAIStructured("/ocr", "pages", token),
        decisions=OpenAIStructured("/systemone", "answers", token),
        transcriptions=OpenAITranscriptions("/audio/transcriptions", token),
        translations=OpenAITranscriptions("/audio/translations", token),
        videos=OpenAIVideos(token),
        realtime=OpenAIRealtime(token),
    )


def _chat(name: str, codec: Callable[[Tokens], ChatCodec], resources: Resources) -> WireFormat:
    return chat_wire(name, codec(resources.token))


def _bedrock(resources: Resources) -> WireFormat:
    return chat_wire("bedrock", BedrockConverse(resources.clock))


def _cohere(resources: Resources) -> WireFormat:
    return chat_wire("cohere", CohereChat(), embeddings=CohereEmbeddings(), rerank=CohereRerank())


def _dashscope(resources: Resources) -> WireFormat:
    images = AlibabaImages(resources.transport)
    codecs: dict[str, Codec] = {"images": images, "image_edits": images, "videos": AlibabaVideos()}
    return WireFormat("dashscope", images.dialect, job_failure, codecs)


def _deepinfra(resources: Resources) -> WireFormat:
    return WireFormat("deepinfra", deepinfra.NAME, upstream_failure, {"rerank": DeepInfraRerank()})


def _elevenlabs(resources: Resources) -> WireFormat:
    return WireFormat("elevenlabs", elevenlabs.NAME, upstream_failure, {"speech": ElevenLabsSpeech()})


def _videos(name: str, codec: Callable[[Tokens], JobCodec], resources: Resources) -> WireFormat:
    return WireFormat(name, name, job_failure, {"videos": codec(resources.token)})


def _google(resources: Resources) -> WireFormat:
    chat = GoogleGenerate(resources.token)
    embeddings = GoogleEmbeddings(chat.authorize)
    speech = GoogleSpeech(chat.authorize)
    images = GoogleImages(chat.authorize)
    videos = GoogleVideos(chat.authorize, resources.spool_dir)
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


def chat_wire(name: str, chat: ChatCodec, **others: Codec) -> WireFormat:
    """Return a protocol with a chat codec, which supplies `failure` and `lost`; `others` are the codecs of
    further operations."""
    return WireFormat(name, chat.dialect, chat.failure, {"chat": chat, **others}, chat.lost)


# A factory for each protocol of `catalogue/entries.py`. The sandbox uses the format of the provider that it imitates.
FACTORIES: dict[str, Callable[[Resources], WireFormat]] = {
    "openai": partial(_openai, "openai", True),
    "sandbox": partial(_openai, "sandbox", False),
    "openai-responses": partial(_chat, "openai-responses", OpenAIResponses),
    "anthropic": partial(_chat, "anthropic", AnthropicMessages),
    "google": _google,
    "bedrock": _bedrock,
    "cohere": _cohere,
    "dashscope": _dashscope,
    "deepinfra": _deepinfra,
    "elevenlabs": _elevenlabs,
    "xai": partial(_videos, xai.NAME, XaiVideos),
    "bytedance": partial(_videos, bytedance.NAME, ByteDanceVideos),
    "minimax": partial(_videos, minimax.NAME, MiniMaxVideos),
    "atlascloud": partial(_videos, atlascloud.NAME, AtlasCloudVideos),
}


def make_protocols(transport: Transport, clock: Clock, spool_dir: str = "") -> dict[str, WireFormat]:
    """Return one stateless WireFormat for each protocol, by name."""
    resources = Resources(transport, clock, AccessTokens(fetch_over(transport), clock).token, spool_dir)
    return {name: make(resources) for name, make in FACTORIES.items()}


def make_batch_codecs(transport: Transport, clock: Clock) -> dict[str, BatchCodec]:
    """Return the codec of each batch API of `catalogue/entries.py`."""
    token = AccessTokens(fetch_over(transport), clock).token
    return {
        "openai": OpenAIBatchApi(token),
        "azure": AzureBatchApi(token),
        "anthropic": AnthropicBatchApi(token),
        "google": GoogleBatchApi(GoogleGenerate(token).authorize),
        "mistral": MistralBatchApi(token),
    }


def make_file_codecs(transport: Transport, clock: Clock) -> dict[str, FileCodec]:
    """Return the codec of each files API of `catalogue/entries.py`."""
    token = AccessTokens(fetch_over(transport), clock).token
    return {
        "openai": OpenAIFileApi(token),
        "azure": AzureFileApi(token),
        "anthropic": AnthropicFileApi(token),
        "google": GoogleFileApi(GoogleGenerate(token).authorize),
        "mistral": MistralFileApi(token),
    }


def make_background_apis(transport: Transport, clock: Clock) -> dict[str, BackgroundApi]:
    """Return each background API of `catalogue/entries.py`."""
    token = AccessTokens(fetch_over(transport), clock).token
    return {"responses": ResponsesBackground(token)}


def make_identities(
    transport: Transport, clock: Clock, environment: Mapping[str, str], states: StateLog
) -> UpstreamIdentities:
    """Return the workload identities of a worker. Their addresses, files and tokens come from `environment` alone."""
    calls = IdentityCalls(transport, clock)
    sources: dict[str, TokenSource] = {
        "aws": AwsIdentity(calls, environment),
        "entra": EntraIdentity(calls, environment),
        "google": GoogleIdentity(calls, environment),
    }
    return UpstreamIdentities(sources, clock, states)


def make_upstreams(wires: dict[str, WireFormat], transport: Transport, clock: Clock, timeouts: Timeouts) -> Upstreams:
    """Return Upstreams that send calls over the network, except for the sandbox, which runs in this process."""

    def make_sandbox() -> LocalServer:
        # The first use imports thirty modules, which takes some 50 ms: not in the event loop.
        server: LocalServer = compute(getattr, sandbox_server, "SandboxServer")(clock, pause)
        return server

    sandbox = Local(make_sandbox, timeouts.wake_s)
    return Upstreams(wires, Network(transport), {"sandbox": sandbox}, timeouts.wake_s, transport)
