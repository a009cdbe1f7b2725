"""Alibaba's own format (DashScope), for what Model Studio does not serve in OpenAI's: images.

May not know: the engine, surfaces, other providers' folders but OpenAI's for addresses.
"""
