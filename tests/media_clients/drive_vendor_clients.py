"""Calls the gateway with the clients of several vendors and of LangChain; prints what they got as JSON."""

import json
import sys

import cohere
import mistralai.client as mistralai
from cerebras.cloud.sdk import Cerebras
from groq import Groq
from langchain_groq import ChatGroq
from perplexity import Perplexity

ADDRESS, KEY = sys.argv[1:]
MODEL = "sandbox/sandbox-echo"
HELLO = [{"role": "user", "content": "Hello"}]
RANKED = {"model": "sandbox/sandbox-rerank", "query": "red fox", "documents": ["a hare", "a red fox"], "top_n": 1}
EMBEDDED = {"model": "sandbox/sandbox-embed", "texts": ["a hare", "a red fox"], "input_type": "search_query"}

LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALLING = {
    "model": MODEL,
    "messages": HELLO,
    "tools": [{"type": "function", "function": LOOK}],
    "tool_choice": "REQUIRED",
}


def call_tool():
    """Send the result of a tool as Cohere's guide does, and return the answer."""
    called = cohere_v2.chat(**CALLING)
    result = {"type": "document", "document": {"data": {"weather": "rain"}}}
    results = [{"role": "tool", "tool_call_id": call.id, "content": [result]} for call in called.message.tool_calls]
    messages = [*HELLO, called.message, *results]
    return cohere_v2.chat(model=MODEL, messages=messages, tools=CALLING["tools"]).message.content[0].text


def streamed_kinds():
    """The kinds of the events of a streamed call of a tool, each once."""
    return list(dict.fromkeys(event.type for event in cohere_v2.chat_stream(**CALLING)))


def text_of(client):
    """The text of a streamed chat of a client with OpenAI's chunks."""
    chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


cohere_v2 = cohere.ClientV2(api_key=KEY, base_url=ADDRESS)
cohere_v1 = cohere.Client(api_key=KEY, base_url=ADDRESS)
cerebras = Cerebras(api_key=KEY, base_url=ADDRESS, warm_tcp_connection=False)
perplexity = Perplexity(api_key=KEY, base_url=ADDRESS)
mistral = mistralai.Mistral(api_key=KEY, server_url=ADDRESS)
pieces = cohere_v2.chat_stream(model=MODEL, messages=HELLO)
groq = Groq(api_key=KEY, base_url=ADDRESS)
chunks = list(groq.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
print(
    json.dumps(
        {
            "complete": groq.chat.completions.create(model=MODEL, messages=HELLO).choices[0].message.content,
            "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
            "usage": chunks[-1].x_groq.usage.total_tokens,
            "langchain": ChatGroq(model=MODEL, api_key=KEY, base_url=ADDRESS).invoke("Hello").content,
            "chat": cohere_v2.chat(model=MODEL, messages=HELLO).message.content[0].text,
            "chat_stream": "".join(e.delta.message.content.text for e in pieces if e.type == "content-delta"),
            "chat_tools": call_tool(),
            "chat_events": streamed_kinds(),
            "chat_v1": cohere_v1.chat(message="Hello").text,
            "chat_stream_v1": "".join(
                e.text for e in cohere_v1.chat_stream(message="Hello") if "text-" in e.event_type
            ),
            "default": [model.name for model in cohere_v2.models.list(endpoint="chat", default_only=True).models],
            "rerank": [row.index for row in cohere_v2.rerank(**RANKED).results],
            "embed": len(cohere_v2.embed(**EMBEDDED).embeddings.float_),
            "embed_v1": len(cohere_v1.embed(**EMBEDDED).embeddings),
            "rerank_v1": [row.index for row in cohere_v1.rerank(**RANKED).results],
            "cerebras": text_of(cerebras),
            "perplexity": text_of(perplexity),
            "cost": perplexity.chat.completions.create(model=MODEL, messages=HELLO).usage.cost.total_cost > 0,
            "mistral": [type(mistral.models.list().data[0]).__name__, mistral.models.retrieve(model_id=MODEL).type],
        }
    )
)
