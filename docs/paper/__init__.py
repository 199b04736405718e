"""The paper's experiments: five figures and a table of claims.

    PYTHONPATH=docs python -m paper OUTPUT --data FOLDER

    data, densities   the rows to fit and to score; exact values of known densities
    fits              one draw: fit the nominal rows, score the others
    roc               ROC curves
    boxes             uniform rows, in a box whose size the paper does not give
    level_sets        Figure 1        banana            Figure 2 (with one_class_svm)
    clairvoyant       Figure 3        real_data         Figure 4
    theory            Figure 5, claims about all n: growth, manifold, neighbor_rule
    claims            averages over draws; rows of the table: claim, result and verdict
    figures           what several figures draw in the same way
    page              paper.csv, and paper.md from it

Each experiment is a function of the number of draws and returns a `claims.Experiment`. Draw
i of an experiment has its own random generator, seeded by a number of the experiment and by
i, so results do not depend on the number of draws or on which experiments were run before.
The library is used by its public names alone.
"""
