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
# Figures 2 and 4 are of public data. They are drawn here if the files that
# ``docs/paper/data.py`` describes are in ``../shared/data`` beside the repository, or in
# the folder that ``LPE_DASK_DATA`` names. ``make paper`` draws them without files: it gets
# the data from OpenML. Figure 2: the banana, beside a one-class support vector machine.

data = Path(os.environ.get("LPE_DASK_DATA", "../../../shared/data")).resolve()


def is_there(*names):
    """Return whether files are in the folder of data, and print which are not."""
    missing = [name for name in names if not (data / name).exists()]
    if missing:
        print(f"This figure is not drawn: it needs {', '.join(missing)} in {data.name}/.")
        print("make paper gets the data from OpenML, and draws all figures.")
    return not missing


if is_there("banana.npz"):
    from paper import banana

    plt.figure(banana.run(folder=data, n_draws=2).figure)
    plt.show()

# %%
# Figure 4: wine, ionosphere and handwritten digits.

if is_there("wine.npz", "ionosphere.npz", "usps.npz"):
    from paper import real_data

    plt.figure(real_data.run(folder=data, n_draws=2).figure)
    plt.show()
