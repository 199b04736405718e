"""Time lpe_dask beside its peers: ``python -m benchmarks``, with ``tests/`` on the path.

    cases          what is timed, on which data, and what is required
      -> data        rows as files
      -> children    one process per contender, driven over pipes
           worker      the loop in such a process
           contenders  peers and ours, one table
      -> checks      results agree, or their times do not count
      -> measure     contenders by turns, medians later
      -> results     one JSON file, saved after every case; ratios
      -> tables, machine

By hand: `forecasts`, `categories`, `confirmed`, `first_minute`, `gaps`, `scales`, and
`finding` (make finding).

Only `bare` knows anything of lpe_dask that is not public.
"""
