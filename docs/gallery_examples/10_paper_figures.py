"""
Figures of the paper
====================

The experiments of M. Zhao and V. Saligrama, "Anomaly Detection with Score functions based
on Nearest Neighbor Graphs", NIPS 2009, with this library. Here averages are over two draws.
:doc:`/explanation/paper` has them over hundreds, and compares each with what the paper
says.
"""

# sphinx_gallery_thumbnail_number = 1

import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, "..")  # the experiments are a package in docs/ of the repository
from paper import clairvoyant, level_sets

# %%
# Figure 1: the level sets of a density of two normal groups, as found from nominal rows,
# and those that are right.

plt.figure(level_sets.run(n_draws=2).figure)
plt.show()

# %%
# Figure 3: ROC curves beside the best test that knows both densities.

plt.figure(clairvoyant.run(n_draws=2).figure)
plt.show()

# %%
# Figures 2 and 4 are of public data, if a copy of it is in ``../shared/data`` beside the
# repository, or in the folder that ``LPE_DASK_DATA`` names. Figure 2: the banana, beside a
# one-class support vector machine.

data = Path(os.environ.get("LPE_DASK_DATA", "../../../shared/data")).resolve()
if (data / "banana.npz").exists():
    from paper import banana

    plt.figure(banana.run(folder=data, n_draws=2).figure)
    plt.show()
else:
    print("without the data")

# %%
# Figure 4: wine, ionosphere and handwritten digits.

if (data / "usps.npz").exists():
    from paper import real_data

    plt.figure(real_data.run(folder=data, n_draws=2).figure)
    plt.show()
else:
    print("without the data")
