"""ElevenLabs' own API: speech.

May not know: the engine, surfaces, or other providers' folders, except OpenAI's for URLs.
"""
