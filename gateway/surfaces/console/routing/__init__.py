"""`/console/routing`: where a request would be routed and why, before it is sent."""
