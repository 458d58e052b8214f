"""Configurations and command words written for NeMo Gym (platform.md E): read, translated into ours, and said.

The way of a configuration: `overrides` (words of the command line) and files found through `roots` (those that the reference
ships are made from our manifests by `shipped`) become one tree (`merging`, with its `directives`), whose server `blocks` become
models (`served`) and variants of environments (`variants`): `translation`. `words` are its commands, `calls` what each is here.
"""
