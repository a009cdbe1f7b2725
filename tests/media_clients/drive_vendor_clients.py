"""Calls the gateway with the clients of Groq, LangChain and Cohere; prints what they got as JSON."""

import json
import sys

import cohere
from groq import Groq
from langchain_groq import ChatGroq

ADDRESS, KEY = sys.argv[1:]
MODEL = "sandbox/sandbox-echo"
HELLO = [{"role": "user", "content": "Hello"}]
RANKED = {"model": "sandbox/sandbox-rerank", "query": "red fox", "documents": ["a hare", "a red fox"], "top_n": 1}
EMBEDDED = {"model": "sandbox/sandbox-embed", "texts": ["a hare", "a red fox"], "input_type": "search_query"}

groq = Groq(api_key=KEY, base_url=ADDRESS)
chunks = groq.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
print(
    json.dumps(
        {
            "complete": groq.chat.completions.create(model=MODEL, messages=HELLO).choices[0].message.content,
            "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
            "langchain": ChatGroq(model=MODEL, api_key=KEY, base_url=ADDRESS).invoke("Hello").content,
            "rerank": [row.index for row in cohere.ClientV2(api_key=KEY, base_url=ADDRESS).rerank(**RANKED).results],
            "embed": len(cohere.ClientV2(api_key=KEY, base_url=ADDRESS).embed(**EMBEDDED).embeddings.float_),
            "embed_v1": len(cohere.Client(api_key=KEY, base_url=ADDRESS).embed(**EMBEDDED).embeddings),
            "rerank_v1": [row.index for row in cohere.Client(api_key=KEY, base_url=ADDRESS).rerank(**RANKED).results],
        }
    )
)
