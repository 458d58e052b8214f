"""The APIs that engines speak. Read `choice` (who speaks what), then `native`, `chat` and `completions`."""
