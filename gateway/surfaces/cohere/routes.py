"""Operations of Cohere's API. Its clients call version 1 (`cohere.Client`) or version 2 (`cohere.ClientV2`)."""

from gateway.dialects import cohere as dialect
from gateway.surfaces.answer_structs import describe_answer
from gateway.surfaces.cohere import chat, chat_v1, chat_v1_writer, cohere_chat_stream, embed
from gateway.surfaces.cohere.chat_v1_answers import V1ChatAnswer
from gateway.surfaces.cohere.chat_v1_schema import V1ChatBody
from gateway.surfaces.cohere.cohere_chat_answers import CohereChatAnswer, CohereEvent
from gateway.surfaces.cohere.cohere_chat_schema import CohereChatBody
from gateway.surfaces.http import About, ErrorFormat, Operation, Surface

ERROR_SCHEMA = describe_answer(dialect.CohereError)
ERRORS = ErrorFormat(dialect.NAME, dialect.error_body, ERROR_SCHEMA, frame=cohere_chat_stream.write_failure)
FIRST_ERRORS = ErrorFormat(dialect.NAME, dialect.error_body, ERROR_SCHEMA, frame=chat_v1_writer.write_failure)
TAG = "Cohere"
CHAT = About("Chat (Cohere dialect)", TAG, request=CohereChatBody, answer=CohereChatAnswer, events=CohereEvent)
CHAT_FIRST = About(
    "Chat (first version of the Cohere dialect)",
    TAG,
    request=V1ChatBody,
    answer=V1ChatAnswer,
    example={"model": "auto", "message": "Hello!"},
    also=(chat_v1.LINES,),
)
EMBED_EXAMPLE = {"model": "auto", "texts": ["Hello!"], "input_type": "search_document"}
EMBED = About(
    "Create embeddings (Cohere dialect)",
    TAG,
    request=embed.CohereEmbedBody,
    answer=embed.EmbeddedByType,
    example=EMBED_EXAMPLE,
)
EMBED_FIRST = About(
    "Create embeddings (first version of the Cohere dialect)",
    TAG,
    request=embed.CohereEmbedBody,
    answer=embed.EmbeddedByType | embed.EmbeddedFloats,
    example=EMBED_EXAMPLE,
)
SURFACE = Surface(
    "cohere",
    ERRORS,
    (
        Operation("POST", "/v2/chat", chat.chat, body="json", hot=True, paid=True, about=CHAT),
        Operation(
            "POST",
            "/v1/chat",
            chat_v1.chat,
            errors=FIRST_ERRORS,
            body="json",
            hot=True,
            paid=True,
            about=CHAT_FIRST,
        ),
        Operation("POST", "/v2/embed", embed.embed, body="json", hot=True, paid=True, about=EMBED),
        Operation("POST", "/v1/embed", embed.embed_first, body="json", hot=True, paid=True, about=EMBED_FIRST),
    ),
    prefixes=("/v2",),
    aliases={
        "/v2/chat": "/v2/chat",
        "/v2/embed": "/v2/embed",
        "/v2/rerank": "/v1/rerank",
    },  # a base URL may end with /v1
)
