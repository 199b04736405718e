"""Runs on a cluster to which faults are done, and what comes out of them: `make chaos`.

schedule   which faults, when, for how long: drawn from a seed
faults     the table of faults
network    hosts as network namespaces
cluster    scheduler, workers and job on these hosts, started again when they end
run        one run under its schedule, written down in a history
checker    bits, half files, leftovers, work done twice
job        the tables, the job, and what it gives where nothing disturbs it
slow, memory, s3    what the workers and the storage do to take part
"""
