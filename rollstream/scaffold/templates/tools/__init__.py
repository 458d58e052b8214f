"""Questions that need a tool."""
