"""The 27 tools, by what they work on."""
