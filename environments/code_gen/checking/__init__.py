"""The program that checks an answer. It runs inside the sandbox, so it imports nothing but the standard library and itself.

It starts for every answer, so it imports no module that costs milliseconds (dataclasses, ctypes, traceback) unless it must.
"""
