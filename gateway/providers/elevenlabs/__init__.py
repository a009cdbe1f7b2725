"""ElevenLabs' speech API.

The package knows neither the engine nor surfaces nor other providers' folders, except OpenAI's for URLs.
"""
