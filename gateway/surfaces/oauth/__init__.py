"""The authorization server over HTTP, for applications: where to find what (`discovery`), registration, tokens and
their end (`endpoints`). The page on which a person lets an application in is one of the pages
(`gateway/surfaces/console/`).
"""
