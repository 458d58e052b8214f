"""The program that checks an answer. It runs inside the sandbox, so it imports nothing but the standard library and itself."""
