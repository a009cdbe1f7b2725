"""OpenID Connect towards identity providers: discovery, requests to their endpoints, and checks of their tokens.

https://openid.net/specs/openid-connect-core-1_0.html, https://openid.net/specs/openid-connect-discovery-1_0.html,
https://openid.net/specs/openid-connect-backchannel-1_0.html; RFC 7636 (PKCE), RFC 9207 (issuer in responses).
"""
