"""What a model of any arguments finds in a small table, by the definitions."""

from functools import cached_property

import numpy as np
import pandas as pd

import definitions
from lpe_dask import LPE
from lpe_dask.model.calibration_split import split_calibration


class Oracle:
    """The right results, under the names that they have in `LPE`.

    Rows are frames with the columns of the nominal ones. A calibration has to be given: not
    "auto".
    """

    def __init__(self, nominal, **arguments):
        nominal = pd.DataFrame(nominal)
        self.arguments = given = LPE(**arguments).get_params()
        self.params, self.columns = given["metric_params"] or {}, list(nominal.columns)
        categorical = given["categorical"] or []
        self.categorical = [name for name in self.columns if name in categorical]
        self.numeric = [name for name in self.columns if name not in categorical]
        self.measures_gaps = given["missing"] == "measure"
        self.is_kept = self.is_known(nominal)
        self.nominal = nominal[self.is_kept]
        n = len(self.nominal)
        self.is_count = given["graph"] == "radius"
        self.is_conformal = given["calibration"] == "conformal"
        division = split_calibration(
            given["calibration"], n, given["calibration_size"], given["random_state"]
        )
        parts = (division.calibration, division.calibration_pool, division.reference)
        self.measured, self.calibration_pool, self.searched = (
            np.arange(n) if part is None else part for part in parts
        )

        #: Places of the rows of the reference in the input.
        self.places = np.flatnonzero(self.is_kept)[self.searched]

    def is_known(self, rows):
        """Whether no value of each row is missing, or infinite.

        Where gaps are measured, whether none is infinite.
        """
        if self.measures_gaps:
            return ~np.isinf(rows[self.numeric].to_numpy(float)).any(axis=1)
        is_finite = np.isfinite(rows[self.numeric].to_numpy(float)).all(axis=1)
        return is_finite & rows[self.categorical].notna().all(axis=1).to_numpy()

    # What is subtracted

    @cached_property
    def nominal_numbers(self):
        """The numbers that medians are learned from."""
        learned = self.nominal.iloc[self.searched] if self.is_conformal else self.nominal
        return learned[self.numeric].to_numpy(float)

    @cached_property
    def learned(self):
        """The numbers that scales and metrics are learned from."""
        return self.numbers(
            self.nominal.iloc[self.searched] if self.is_conformal else self.nominal
        )

    def numbers(self, rows):
        """Numbers of rows, filled where gaps are measured."""
        numbers = rows[self.numeric].to_numpy(float)
        if not self.measures_gaps:
            return numbers
        return definitions.without_gaps(numbers, self.nominal_numbers)

    @cached_property
    def factor(self):
        """L of z = L' x where the metric has a matrix, else None."""
        if self.arguments["metric"] != "mahalanobis":
            return None
        if "VI" in self.params:
            return np.array(definitions.cholesky(self.params["VI"]))
        scale = self.arguments["scale"]
        covariance = np.array(definitions.covariances(self.learned, scale))
        deviations = np.sqrt(np.diag(covariance))
        correlation = covariance / (deviations[:, None] * deviations)
        return definitions.cholesky_of_inverse(correlation.tolist()) / deviations[:, None]

    @cached_property
    def weights(self):
        """Those of the categories, and of the numbers in their forms."""
        of_all = self.params.get("w", np.ones(len(self.columns)))
        of = dict(zip(self.columns, of_all, strict=True))
        of_numbers = None
        if not self.numeric:
            of_numbers = []
        elif self.factor is None:
            params = self.params
            if "w" in params:
                params = {"w": [of[name] for name in self.numeric]}
            metric = self.arguments["metric"]
            metric = "euclidean" if metric == "geodesic" else metric
            scale = self.arguments["scale"]
            of_numbers = definitions.weights_of_forms(self.learned, scale, metric, params)
        of_gaps = self.params.get("w_missing", 1.0)
        of_codes = [of[name] for name in self.categorical]
        if self.measures_gaps:
            of_codes += [of_gaps if of[name] != 0 else 0.0 for name in self.numeric]
        return {"weights": of_codes, "w": of_numbers}

    def scaled(self, numbers):
        """Numbers as a matrix takes them."""
        return definitions.scaled(numbers, self.learned, self.arguments["scale"])

    def prepared(self, rows):
        """Numbers in their forms, then categories, then where numbers are missing."""
        numbers = self.numbers(rows)
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
        if self.factor is not None:
            numbers = definitions.mapped(self.scaled(numbers), self.factor)
        elif self.numeric:
            numbers = definitions.forms(numbers, self.learned, self.arguments["scale"])
        codes = rows[self.categorical].to_numpy(object)
        if self.measures_gaps:
            codes[pd.isna(codes)] = None  # equal to itself
            codes = np.hstack([codes, rows[self.numeric].isna().to_numpy()])
        return [[*a, *b] for a, b in zip(numbers, codes, strict=True)]

    # Statistics and p-values

    def _measure(self, queries, reference, exclude_self=False):
        given, n_neighbors = self.arguments, self.arguments["n_neighbors"]
        is_mean = given["aggregation"] == "mean"
        if given["metric"] == "geodesic":
            distances = definitions.geodesic_distances(
                queries, reference, self.params["n_neighbors"],
                self.params["graph"] == "union", exclude_self, self.weights["w"],
            )  # fmt: skip
            if self.is_count:
                return np.array(definitions.geodesic_counts(distances, given["radius"]))
            of_rows = definitions.geodesic_means if is_mean else definitions.geodesic_radii
            return np.array(of_rows(distances, n_neighbors))
        function = definitions.mean_radii if is_mean else definitions.knn_radii
        if self.is_count:
            function, n_neighbors = definitions.neighbor_counts, given["radius"]
        return function(queries, reference, n_neighbors, exclude_self, **self.weights)

    def _compared(self, rows, statistic):
        """What p-values compare: with a known density another statistic."""
        log_density = self.arguments["anomaly_log_density"]
        if log_density is None:
            return statistic
        compare, of_all = definitions.log_weighted_count, ()
        if not self.is_count:
            compare, of_all = definitions.log_weighted_radius, (len(self.columns),)
        pairs = zip(statistic, log_density(rows.to_numpy(float)), strict=True)
        compared = [
            np.nan if np.isnan(pair[0]) else compare(*pair, *of_all) for pair in pairs
        ]
        return np.array(compared)

    def _p_value(self, value, scores_nominal_rows=False):
        if np.isnan(value):
            return np.nan
        known = self._calibration
        n = sum(bool(m <= value if self.is_count else m >= value) for m in known)
        if self.is_conformal:
            return definitions.conformal_p_value(n - scores_nominal_rows, len(known))
        return n / len(known)

    @cached_property
    def reference(self):
        """The rows that new ones are measured among, prepared."""
        return self.prepared(self.nominal.iloc[self.searched])

    @cached_property
    def _calibration(self):
        rows = self.nominal.iloc[self.measured]
        if self.is_conformal:
            return self._compared(rows, self._measure(self.prepared(rows), self.reference))
        part = self.prepared(self.nominal.iloc[self.calibration_pool])
        of_part = self._measure(part, part, exclude_self=True)
        return self._compared(
            rows, of_part[np.searchsorted(self.calibration_pool, self.measured)]
        )

    @property
    def calibration_(self):
        """Statistics of the calibration rows, ascending."""
        return np.sort(self._calibration)

    @property
    def p_values_(self):
        """Those of the nominal rows, each without itself; NaN for those dropped."""
        own = self._measure(self.prepared(self.nominal), self.reference)
        among = self._measure(self.reference, self.reference, exclude_self=True)
        own[self.searched] = among
        p_values = np.array(list(map(self._p_value, self._compared(self.nominal, own))))
        p_values[self.measured] = [
            self._p_value(v, scores_nominal_rows=True) for v in self._calibration
        ]
        of_input = np.full(len(self.is_kept), np.nan)
        of_input[self.is_kept] = p_values
        return of_input

    def statistic(self, rows):
        """R or N of rows; NaN for those with missing values."""
        values, is_known = np.full(len(rows), np.nan), self.is_known(rows)
        values[is_known] = self._measure(self.prepared(rows[is_known]), self.reference)
        return values

    def score_samples(self, rows):
        """P-values of new rows."""
        return np.array(
            list(map(self._p_value, self._compared(rows, self.statistic(rows))))
        )

    def predict(self, rows):
        """-1 for rows with p <= alpha, else 1."""
        return np.where(self.score_samples(rows) <= self.arguments["alpha"], -1, 1)

    # Reasons

    def nearest(self, rows, n, own=None):
        """(distance, number) of the n nearest rows of the reference, for each row.

        ``own`` says which number each row has in the reference itself; -1 for none.
        """
        left_out = [None] * len(rows) if own is None else own
        return [
            definitions.nearest_rows(query, self.reference, n, number, **self.weights)
            if is_known
            else []
            for query, number, is_known in zip(
                self.prepared(rows), left_out, self.is_known(rows), strict=True
            )
        ]

    def shares(self, rows, own=None):
        """The share of each column in the distance of each row; NaN where there is none."""
        n_neighbors, n_numeric = self.arguments["n_neighbors"] or 20, len(self.numeric)
        nearest, parts_of = self.nearest(rows, n_neighbors, own), definitions.squared_parts
        queries, reference, how = self.prepared(rows), self.reference, self.weights
        if self.factor is not None:
            queries, reference = (
                self.scaled(some.to_numpy(float))
                for some in (rows, self.nominal.iloc[self.searched])
            )
            how = {"inverse_covariance": self.factor @ self.factor.T}
            parts_of = definitions.mahalanobis_parts
        found = np.full((len(rows), len(self.columns)), np.nan)
        places = [*map(self.columns.index, [*self.numeric, *self.categorical])]
        for i, (query, of_row) in enumerate(zip(queries, nearest, strict=True)):
            parts = [
                parts_of(query, reference[j], n_columns=n_numeric, **how) for _, j in of_row
            ]
            if self.measures_gaps:
                parts = [self._with_gaps(of_pair) for of_pair in parts]
            shares = definitions.shares([d for d, _ in of_row], parts)
            if shares is not None:
                found[i, places] = shares
        return found

    def _with_gaps(self, parts):
        """Parts of columns, those of gaps added to those of their numbers."""
        n_columns = len(self.columns)
        of_gaps = parts[n_columns:]
        numbers = [a + b for a, b in zip(parts, of_gaps, strict=False)]
        return [*numbers, *parts[len(of_gaps) : n_columns]]

    @property
    def typical_shares(self):
        """The mean of the shares of some rows of the reference, each without itself."""
        numbers = definitions.typical_rows(len(self.searched))
        rows = self.nominal.iloc[self.searched[numbers]]
        of_rows = [
            None if np.isnan(row).any() else row for row in self.shares(rows, numbers)
        ]
        return np.array(definitions.typical_shares(of_rows, len(self.columns)))
