"""Contracts of the pipeline: events, topics, codec, rows, failures.

Everything here is data and pure functions over it. Nothing in this package imports from `environments`, `services`
or `rollstream`, and nothing here does I/O: a program that only wants to read or write rollstream's topics needs this
package alone.
"""
