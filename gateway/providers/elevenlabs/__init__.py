"""ElevenLabs' own API: speech.

May not know: the engine, surfaces, other providers' folders but OpenAI's for addresses.
"""
