"""
First
=====

x
"""

import lpe_dask

print(lpe_dask.LPE())
