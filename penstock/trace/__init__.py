"""The one kind of state: immutable sorted batches of weighted rows, found by key.

A trace never interprets its columns. It knows two hashes of each row, computed by Spark, and a
vector of weights; equal rows add up, and rows whose weights are all zero vanish.
"""
