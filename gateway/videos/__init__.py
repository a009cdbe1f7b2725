"""Video jobs: requested in one call and ready minutes later, on any worker.

A job is a row (`job_table`) with a state. It is inserted before the provider is called, together
with the hold on every budget that may pay for it. `creation` starts it upstream; the leading worker polls its status
(`video_jobs`). The worker that learns of its end writes state, usage row, spending and callback in one transaction
(`ending`). A process may therefore be killed at any point: another worker continues with the row.

`content_proxy` streams the video from its provider, `links` signs its URLs, `video_jobs` delivers webhooks about ends.
This package knows the engine and the interface of protocols, but no surface and no dialect.
"""
