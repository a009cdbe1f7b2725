"""Alibaba's DashScope format, for images and videos, which Model Studio does not serve in OpenAI's format.

The package knows neither the engine nor surfaces nor other providers' folders, except OpenAI's for URLs.
"""
