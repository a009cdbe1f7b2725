"""The OAuth authorization server over HTTP, for applications: metadata documents (`discovery`), registration, tokens
and revocation (`endpoints`). The consent page is one of the console's pages (`gateway/surfaces/console/`)."""
