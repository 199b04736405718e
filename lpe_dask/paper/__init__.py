"""The paper's experiments, behind `lpe-dask paper`: five figures and a table of claims.

    data, densities   what is learnt from and what is scored; what densities alone say
    fits              one draw: fit the nominal rows, score the others
    boxes             uniform rows, in a box whose size the paper does not give
    level_sets        Figure 1        banana            Figure 2 (with one_class_svm)
    clairvoyant       Figure 3        real_data         Figure 4
    theory            what is claimed for all n: growth, manifold, neighbor_rule
    claims            averages over draws; one row of the table: what is claimed, what comes
                      out, does it hold
    page, run         pictures, index.html and table.csv

Each experiment is a function of the number of draws and gives a `claims.Experiment`. Draw i
of an experiment has a random generator of its own, seeded by a number of the experiment and
by i, so that numbers do not depend on how many draws there are or on what else was run.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
