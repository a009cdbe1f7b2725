"""The pages of people: members and invitations of an organization, and each member."""
