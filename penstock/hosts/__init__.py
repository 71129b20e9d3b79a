"""One pipeline on several hosts: a coordinator, and on each host an agent and a Spark worker.

The coordinator is the process of the pipeline itself. A host is a process of its own (`penstock host`) with
a storage directory of its own; it checks in with the coordinator, runs a Spark worker for it, and serves the
batch files that tasks wrote there.
"""
