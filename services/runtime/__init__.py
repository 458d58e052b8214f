"""The consuming core: bounded out-of-order work inside a partition, and the group commit that makes it count once.

Read `lane` first, then `completion`, `delivery` and `stage`.
"""
