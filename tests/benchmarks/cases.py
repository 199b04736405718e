"""What is timed and what is required: the one table, in the order of the report.

The first run of a case is the one that the others are compared with: a ratio is the time of
another run over the time of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from definitions import neighbors_rule

#: What ``--quick`` divides numbers of rows by, and the fewest it leaves.
QUICK_DIVISOR = 100
QUICK_ROWS = 500


@dataclass(frozen=True)
class Run:
    """One line of a case.

    Attributes
    ----------
    label : str
        Its name in tables and results.
    contender : str
        A name of `contenders.CONTENDERS`.
    n_neighbors : int
    arguments : mapping
        Of `lpe_dask.LPE`.
    may_be_off : bool
        Whether its time counts whatever its result is: how much of that is wrong is told.
    """

    label: str
    contender: str
    n_neighbors: int = 20
    arguments: Mapping[str, Any] = field(default_factory=dict)
    may_be_off: bool = False


@dataclass(frozen=True)
class Target:
    """What a number has to be, and what we hope for.

    Attributes
    ----------
    runs : tuple of str
        Labels; of several the fastest counts.
    required, aim : float
        The aim is the harder one: where it is the smaller, both are upper bounds.
    """

    runs: tuple[str, ...]
    required: float
    aim: float

    @property
    def is_upper_bound(self) -> bool:
        return self.aim < self.required


@dataclass(frozen=True)
class Case:
    """Some runs on the same rows.

    Attributes
    ----------
    name : str
    source : str
        A name of `data.SOURCES`.
    n_rows, n_features : int
    runs : tuple of Run
    targets : tuple of Target
        Of ratios to the first run.
    n_queries : int
        New rows that are asked about; 0 where it is the rows themselves.
    """

    name: str
    source: str
    n_rows: int
    n_features: int
    runs: tuple[Run, ...]
    targets: tuple[Target, ...] = ()
    n_queries: int = 0

    def shrunk(self) -> Case:
        """Return the case for ``--quick``: few rows, and figures that mean nothing."""
        n_queries = self.n_queries // QUICK_DIVISOR
        n_rows = max(QUICK_ROWS, self.n_rows // QUICK_DIVISOR)
        return replace(self, n_rows=n_rows, n_queries=n_queries)


@dataclass(frozen=True)
class Group:
    """Cases that make one table.

    Attributes
    ----------
    name, title : str
    cases : list of Case
    median : Target, optional
        Of the ratios that the first target of each case is about.
    shows_memory : bool
    """

    name: str
    title: str
    cases: list[Case]
    median: Target | None = None
    shows_memory: bool = False


OURS = Run("lpe_dask", "fit")
BRUTE = Run("brute", "fit", arguments={"algorithm": "brute"})
PRUNED = Run("pruned", "fit", arguments={"algorithm": "pruned"})
BARE = Run("bare kernel", "bare kernel")
FAISS = Run("faiss", "faiss")
SKLEARN = Run("scikit-learn", "scikit-learn")
TREE = Run("pykdtree", "pykdtree")
PYOD = Run("PyOD", "PyOD")
PROCESSES = tuple(
    replace(BRUTE, label=label, contender=f"fit on {label}")
    for label in ("2 processes", "1 process")
)


def _case(
    kind: str,
    n_rows: int,
    n_features: int,
    runs: tuple[Run, ...],
    *targets: tuple[str, float, float],
    source: str = "gaussian",
    n_queries: int = 0,
) -> Case:
    """Return a case; a target begins with the label of its run."""
    name = f"{kind}-d{n_features}-n{n_rows // 1000}k"
    wanted = tuple(Target((label,), *bounds) for label, *bounds in targets)
    return Case(name, source, n_rows, n_features, runs, wanted, n_queries)


#: Features -> (required, aim) of the time of faiss over ours.
FAISS_ON_GAUSSIAN = {
    8: (3.0, 5.0),
    16: (1.5, 2.5),
    64: (1.0, 1.5),
    128: (1.0, 1.5),
    256: (1.0, 1.5),
}


def _gaussian(n_features: int) -> Case:
    runs = (OURS, FAISS, SKLEARN)
    if n_features <= 8:  # beyond, trees look at nearly every row
        runs += (TREE,)
    if n_features in (8, 64):
        runs += (PYOD,)
    targets = [("scikit-learn", 2.0, 4.0)]
    if n_features in FAISS_ON_GAUSSIAN:
        targets.insert(0, ("faiss", *FAISS_ON_GAUSSIAN[n_features]))
    if n_features == 2:
        targets.append(("pykdtree", 0.8, 1.2))
    return _case("gaussian", 100_000, n_features, runs, *targets)


#: Features -> (required, aim) of the time of faiss over that of brute force.
FAISS_ON_BRUTE = {
    8: (2.5, 3.0),
    16: (2.0, 2.5),
    62: (1.6, 2.0),
    200: (1.2, 1.5),
    768: (1.0, 1.2),
}


def _table(source: str, n_rows: int, n_features: int) -> Case:
    peers = (FAISS, SKLEARN) + ((TREE,) if n_features <= 10 else ())
    peers = tuple(replace(peer, may_be_off=True) for peer in peers)
    targets = (
        Target(tuple(peer.label for peer in peers), 1.0, 1.3),
        Target(("brute", "pruned"), 1 / 1.15, 1 / 1.05),
    )
    runs = (OURS, BRUTE, PRUNED, *peers)
    return Case(f"table-{source}", source, n_rows, n_features, runs, targets)


def _small(n_rows: int) -> Case:
    runs = (Run("score", "score"), FAISS, SKLEARN, BARE)
    targets = (Target(("faiss", "scikit-learn"), 1.0, 1.0),) if n_rows == 5000 else ()
    return Case(f"small-n{n_rows}", "gaussian", n_rows, 62, runs, targets)


def _neighbors(n_features: int) -> Case:
    peers = ("faiss", "pykdtree") if n_features <= 8 else ("faiss",)
    runs = (Run("K = 250", "fit", 250), Run("K = 20", "fit", 20))
    runs += tuple(Run(f"{peer}, K = 250", peer, 250) for peer in peers)
    targets = [(run.label, 1.0, 2.0) for run in runs[2:]]
    return _case("neighbors", 100_000, n_features, runs, *targets)


def _dask(n_rows: int, n_features: int) -> Case:
    runs = (BARE, replace(BRUTE, label="2 threads"), PROCESSES[0])
    targets = [(run.label, 1.15, 1.05) for run in runs[1:]]
    return _case("dask", n_rows, n_features, runs, *targets)


def _predict(source: str) -> Case:
    runs = tuple(
        Run(method, method, arguments={"alpha": 0.05})
        for method in ("predict", "score_samples")
    )
    return _case(
        f"predict-{source}", 400_000, 32, runs, ("score_samples", 3.0, 6.0),
        source=source, n_queries=100_000,
    )  # fmt: skip


def _whole(
    name: str, source: str, n_rows: int, n_features: int, k: int | None = None, **more: Any
) -> Case:
    run = Run("score", "score", k or neighbors_rule(n_rows), more)
    return Case(name, source, n_rows, n_features, (run,))


#: Source, rows and columns of the tables.
TABLES = (
    ("http-single", 567_498, 3),
    ("cover-single", 286_048, 10),
    ("cover-standard", 286_048, 10),
    ("shuttle-single", 49_097, 9),
    ("shuttle-standard", 49_097, 9),
    ("kdd99", 805_050, 38),
    ("satellite", 6435, 36),
    ("pendigits", 6870, 16),
    ("mammography", 11_183, 6),
    ("usps", 9298, 256),
    ("flags", 40_000, 40),
    ("one-hot", 40_000, 60),
    ("whole-numbers", 40_000, 12),
    ("log-normal", 40_000, 16),
    ("heavy-tailed", 40_000, 16),
    ("constant-columns", 40_000, 20),
    ("in-time", 40_000, 10),
    ("repeats", 40_000, 12),
    ("half-equal", 40_000, 12),
    ("mixed", 40_000, 34),
)

GROUPS = (
    Group(
        "brute",
        "Brute force, one Gaussian",
        [
            _case("brute", n_rows, d, (BRUTE, FAISS), ("faiss", *FAISS_ON_BRUTE[d]))
            for d in FAISS_ON_BRUTE
            for n_rows in (20_000, 100_000)
            if n_rows * d < 50_000_000
        ],
    ),
    Group(
        "columns",
        "Few columns, one Gaussian",
        [
            _case("columns", n_rows, d, (OURS, TREE), ("pykdtree", 1.0, 1.5))
            for d in (2, 3, 5)
            for n_rows in (100_000, 1_000_000)
        ],
    ),
    Group(
        "tables",
        "Tables, real and imitated",
        [_table(*table) for table in TABLES],
        median=Target((), 3.0, 5.0),
    ),
    Group("small", "Small tables, 62 columns", [_small(n) for n in (1000, 5000, 10_000)]),
    Group("gaussian", "One Gaussian", [_gaussian(2**i) for i in range(1, 9)]),
    Group(
        "clusters",
        "Clusters",
        [
            _case(
                "clusters", 100_000, d, (OURS, FAISS, SKLEARN), ("faiss", 5.0, 8.0),
                ("scikit-learn", 2.0, 4.0), source="clusters",
            )
            for d in (8, 16, 32)
        ],
    ),
    Group("neighbors", "More neighbors", [_neighbors(8), _neighbors(16)]),
    Group(
        "dask",
        "A fit through Dask, over its bare kernel",
        [_dask(200_000, 8), _dask(80_000, 64)],
    ),
    Group(
        "predict",
        "Labels only, 100,000 new rows",
        [_predict("gaussian"), _predict("clusters")],
    ),
    Group(
        "processes",
        "A second process",
        [
            _case(
                "processes", 200_000, 8,
                PROCESSES,
                ("1 process", 1.7, 1.95),
            )
        ],
    ),
    Group(
        "whole",
        "Whole tables, each row against all others",
        [
            _whole("million", "clusters", 1_000_000, 8),
            _whole("million-k20", "clusters", 1_000_000, 8, 20),
            _whole("http", "http", 567_498, 3, scale="standard"),
            _whole("cover", "cover", 286_048, 10, scale="standard"),
        ],
        shows_memory=True,
    ),
)  # fmt: skip
