"""Video jobs: what is asked for in one request and ready minutes later, by whichever worker.

A job is a row (`table`) that goes through the states of `states`. It is made before the provider is called, together
with the hold on every budget that may pay for it; `creation` begins it upstream, the leading worker asks how far it is
(`polling`), and whoever learns of its end writes state, usage row, spending and callback in one transaction (`ending`).
So a process may be killed at any point: what it leaves is a row that somebody else takes up.

`content` brings the video itself from its provider, `links` are the signed addresses of it, `callbacks` tell of ends.
It knows the engine and protocols' interface, and no surface and no dialect.
"""
