"""`/console/playground`: chat, images and speech through the API, with a short-lived key."""
