"""A calendar kept through a conversation, as a JSON list."""
