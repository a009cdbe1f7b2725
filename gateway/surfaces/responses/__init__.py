"""OpenAI's Responses API for clients that use it (SDKs, coding agents), with every model of the catalogue.

This package may not know any provider. Decided against: passing `store` and `previous_response_id` to providers (a
conversation would be tied to one account at one of them; the gateway's own store serves every provider), background
responses, and WebSockets (a clear error makes clients use HTTP).
"""
