"""Signed-in visitors: who they are, and the reports and request logs that they may see."""
