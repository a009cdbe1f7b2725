"""OpenAI's Responses API: every model of the catalogue for clients of this API (SDKs, coding agents).

May not know any provider. Decided against: passing `store` and `previous_response_id` to providers (a conversation
would be tied to one account at one of them; our own store keeps it for every provider), background answers, and
WebSockets (clients are told at once to use HTTP).
"""
