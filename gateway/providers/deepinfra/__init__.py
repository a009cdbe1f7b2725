"""DeepInfra's own inference API, for what it does not serve in OpenAI's format: rerank.

May not know: the engine, surfaces, or other providers' folders, except OpenAI's for URLs.
"""
