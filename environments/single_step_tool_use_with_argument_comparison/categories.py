"""The texts of the result field `category`, which programs that read results compare literally (the reference's words)."""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """Why a rollout has its reward."""

    NONE_FOUND = "No tool call or chat message was found in the response"
    NO_CALL = "No tool call was found when one was expected"
    MESSAGE = "A chat message was found as expected"
    NO_MESSAGE = "A tool call was executed when a chat message was expected"
    UNEXPECTED_TOOL = "The tool in a tool call is not the expected tool"
    DECODE = "An error occurred when decoding the arguments string in a tool call as a JSON object"
    TYPE = "The type of an argument value in a tool call is different than the expected type"
    KEYS = "The keys in an object in an argument value in a tool call are different than the keys in the expected object"
    LIST_LENGTH = "A list in an argument value in a tool call has a different length than the expected list"
    VALUE = "An argument value in a tool call is different than the expected value"
    CALL = "A tool call that matches the expected tool call was found"
    BATCH_LENGTH = "The number of tool calls in a batch is different than expected"
    BATCH = "A tool-call batch that matches the expected tool calls was found"
