"""The files of one run beside its results: materialized inputs, run record, aggregates, and readers of all of them."""
