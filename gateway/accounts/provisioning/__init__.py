"""Provisioning: users and groups that an identity provider manages over SCIM, and the tokens that it uses."""
