"""Alibaba's own format (DashScope), for what Model Studio does not serve in OpenAI's: images.

May not know: the engine, surfaces, or other providers' folders, except OpenAI's for URLs.
"""
