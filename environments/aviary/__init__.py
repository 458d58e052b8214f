"""Episodes of tool calls that the environment answers and scores step by step: GSM8k, HotPotQA."""
