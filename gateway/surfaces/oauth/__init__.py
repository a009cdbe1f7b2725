"""The OAuth authorization server over HTTP, for applications: metadata documents, registration, tokens and
revocation (`routes`), and sign-in on devices (`device_sign_in`). The consent page is one of the console's pages
(`gateway/surfaces/console/`)."""
