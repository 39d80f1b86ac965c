"""The WebSocket door: what open pages hear while they are open."""
