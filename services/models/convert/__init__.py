"""From one API's shapes to another's: pure functions over parsed JSON, no wire and no settings of endpoints.

Read `chat_messages` and `chat_request` (Responses to Chat Completions, platform.md D4), `chat_reply` (the way back, D5), then
the gateway's other directions.
"""
