"""What is settled in tests, as it differs from machine to machine."""

#: ``lpe-dask.costs``, as measured once.
SETTLED_COSTS = {
    "brute": [1900, 0.08, 0.0146],
    "pruned": [930, 0.14, 0.013, 0.0, 2.4, 0.143],
}
