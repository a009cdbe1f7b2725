"""DeepInfra's own inference API, for what it does not serve in OpenAI's format: rerank.

May not know: the engine, surfaces, other providers' folders but OpenAI's for addresses.
"""
