"""What a model of rows in groups finds in a small table, by the definitions."""

import numpy as np
import pandas as pd

import definitions
from lpe_dask import LPE
from lpe_dask.model.calibration_split import split_calibration
from oracle import Oracle

#: Categories in the place of those that are missing, and of numbers.
MISSING = "missing"


def _among_themselves(oracle):
    """Statistics of nominal rows, each without itself where it is in the reference."""
    own = oracle._measure(oracle.prepared(oracle.nominal), oracle.reference)
    own[oracle.searched] = oracle._measure(
        oracle.reference, oracle.reference, exclude_self=True
    )
    return own


class GroupOracle:
    """The right results of `LPE` with ``by``, under its names.

    Each group is one `Oracle`, of which parts are replaced by those of all groups where it
    has none of its own. A calibration has to be given, and rows that are not dropped.
    """

    def __init__(self, nominal, *, by, own, **arguments):
        self.by, self.own = list(by), set(own)
        self.arguments = arguments
        given = LPE(**arguments).get_params()
        self.kind, self.alpha = given["calibration"], given["alpha"]
        self.columns = [name for name in nominal.columns if name not in self.by]
        keys = nominal[self.by].astype(object)
        self.nominal = nominal[keys.notna().all(axis=1).to_numpy()].reset_index(drop=True)
        self.is_in_group = keys.notna().all(axis=1).to_numpy()
        self.places = {
            key: np.flatnonzero(self._is_of(self.nominal, key))
            for key in {tuple(row) for row in self.nominal[self.by].itertuples(index=False)}
        }
        self.parts, self.small = {}, set()
        for key, places in self.places.items():
            self._divide(key, places, given)
        if self.are_all_small:
            return
        is_scaled = arguments.get("scale") is not None or given["missing"] == "measure"
        if "scale" in self.own and "neighbors" not in self.own and is_scaled:
            self._scale_by_groups()
        self.all = self._of_all(given)
        self.oracles = {key: self._of_group(key, given) for key in self.parts}
        self._calibrate()

    @property
    def are_all_small(self):
        """Whether there is nothing to compare with."""
        return self.small == set(self.places)

    def _is_of(self, rows, key):
        is_own = np.ones(len(rows), bool)
        for name, value in zip(self.by, key, strict=True):
            is_own &= (rows[name].astype(object) == value).fillna(False).to_numpy(bool)
        return is_own

    def _divide(self, key, places, given):
        size, seed = given["calibration_size"], given["random_state"]
        try:
            division = split_calibration(self.kind, len(places), size, seed)
        except ValueError:
            self.small.add(key)
            return
        numbers = (division.calibration, division.calibration_pool, division.reference)
        measured, pool, searched = (
            np.arange(len(places)) if part is None else part for part in numbers
        )
        self.parts[key] = measured, pool, searched
        n_neighbors = given["n_neighbors"] or definitions.neighbors_rule(len(searched))
        among = min(len(searched), division.n_pool or len(searched)) - 1
        has_few = "calibration" in self.own and 1 / (len(measured) + 1) > self.alpha
        has_none = "neighbors" in self.own and given["graph"] == "knn"
        if has_few or (has_none and n_neighbors > among):
            self.small.add(key)

    def _rows(self, key):
        return self.nominal.iloc[self.places[key]][self.columns]

    # A scale of each group, and one metric

    def _scale_by_groups(self):
        """Replace the rows by scaled ones, which have gaps as categories."""
        scale = self.arguments.pop("scale", None)
        self.scalers = {}
        for key, (_, _, searched) in self.parts.items():
            rows = self._rows(key)
            learned = rows.iloc[searched] if self.kind == "conformal" else rows
            plain = {
                name: self.arguments[name]
                for name in ("categorical", "missing")
                if name in self.arguments
            }
            self.scalers[key] = Oracle(learned, scale=scale, calibration="loo", **plain)
        scaled = self.scaled(self.nominal)
        numbers = [name for name in scaled if str(name).startswith("number")]
        scaled[numbers] = scaled[numbers].fillna(0.0)  # of groups that are not divided
        self.nominal = pd.concat([self.nominal[self.by], scaled], axis=1)
        any_scaler = next(iter(self.scalers.values()))
        names, codes = any_scaler.columns, any_scaler.categorical
        params = dict(self.arguments.get("metric_params") or {})
        if any_scaler.measures_gaps:
            codes = [*codes, *(f"gap {name}" for name in any_scaler.numeric)]
        of_gaps = params.pop("w_missing", 1.0)
        if self.arguments.get("metric", "euclidean") == "euclidean":
            given = dict(zip(names, params.get("w", np.ones(len(names))), strict=True))
            w = [given[any_scaler.numeric[i % len(any_scaler.numeric)]]
                 for i in range(len(numbers))]  # fmt: skip
            w += [given[name] for name in any_scaler.categorical]
            if any_scaler.measures_gaps:
                w += [of_gaps * (given[name] != 0) for name in any_scaler.numeric]
            params = {"w": w}
        self.columns = [*numbers, *codes]
        self.arguments |= {"categorical": codes or None, "metric_params": params or None}
        self.arguments.pop("missing", None)

    def scaled(self, rows):
        """Numbers of rows as their groups scale them, and categories."""
        scaler = next(iter(self.scalers.values()))
        n_scaled = scaler.scaled(scaler.learned).shape[1]
        numbers = np.full((len(rows), n_scaled), np.nan)
        for key, of_group in self.scalers.items():
            which = np.flatnonzero(self._is_of(rows, key))
            if len(which):
                own = of_group.numbers(rows.iloc[which])
                numbers[which] = of_group.scaled(np.where(np.isinf(own), np.nan, own))
        names = [f"number {i}" for i in range(n_scaled)]
        columns = [pd.DataFrame(numbers, rows.index, names), rows[scaler.categorical]]
        if scaler.measures_gaps:
            columns[1] = columns[1].astype(object).where(columns[1].notna(), MISSING)
            gaps = rows[scaler.numeric].isna()
            columns.append(gaps.set_axis([f"gap {name}" for name in gaps], axis=1))
        return pd.concat(columns, axis=1)

    # What is learned and searched

    def _of_all(self, given):
        oracle = Oracle(self.nominal[self.columns], **self._given(given, None))
        whole = [
            [self.places[key][part[i]] for key, part in self.parts.items()]
            for i in range(3)
        ]
        oracle.measured, oracle.calibration_pool, oracle.searched = (
            np.sort(np.concatenate(part)) for part in whole
        )
        if hasattr(self, "scalers"):
            places = [self.places[key] for key in self.parts]
            some = oracle.searched if oracle.is_conformal else np.concatenate(places)
            oracle.learned = oracle.numbers(oracle.nominal.iloc[some])
        n_neighbors = given["n_neighbors"] or definitions.neighbors_rule(
            len(oracle.searched)
        )
        oracle.arguments["n_neighbors"] = n_neighbors
        return oracle

    def _given(self, given, n_neighbors):
        names = set(self.arguments) - {"n_neighbors", "calibration_size"}
        return {name: self.arguments[name] for name in names} | {"n_neighbors": n_neighbors}

    def _of_group(self, key, given):
        measured, pool, searched = self.parts[key]
        n_neighbors = given["n_neighbors"] or definitions.neighbors_rule(len(searched))
        rows = self._rows(key)
        oracle = Oracle(rows, **self._given(given, n_neighbors))
        oracle.measured, oracle.calibration_pool, oracle.searched = measured, pool, searched
        if given["graph"] == "radius" and given["radius"] is None:
            radius = definitions.radius_rule(len(searched), len(self.columns))
            oracle.arguments["radius"] = radius
        if "scale" not in self.own:
            oracle.nominal_numbers = self.all.nominal_numbers
            oracle.learned = self.all.learned
        return oracle

    def _calibrate(self):
        """Find what rows are compared with, in each group."""
        measured = {}
        if "neighbors" in self.own:
            for key, oracle in self.oracles.items():
                if key not in self.small:
                    measured[key] = oracle._calibration
        else:
            values = self.all._calibration
            codes = {key: set(of) for key, of in self.places.items()}
            for key in self.oracles:
                is_own = [place in codes[key] for place in self.all.measured]
                measured[key] = values[is_own]
        every = np.concatenate(list(measured.values()))
        for key, oracle in self.oracles.items():
            is_own = "calibration" in self.own
            oracle._known = measured.get(key)
            oracle._calibration = measured.get(key, every[:0]) if is_own else every

    @property
    def calibration_(self):
        """Statistics of the calibration rows of all groups, ascending."""
        known = [
            oracle._known for key, oracle in self.oracles.items() if key not in self.small
        ]
        return np.sort(np.concatenate(known))

    # Results

    def _by_group(self, rows, function, fill=np.nan):
        found = np.full(len(rows), fill)
        for key, oracle in self.oracles.items():
            which = np.flatnonzero(self._is_of(rows, key))
            if len(which):
                found[which] = function(key, oracle, which)
        return found

    def statistic(self, rows):
        """Statistics of new rows, in their groups."""
        if hasattr(self, "scalers"):
            is_inf = np.isinf(rows.select_dtypes("number").to_numpy(float)).any(axis=1)
            rows = pd.concat([rows[self.by], self.scaled(rows)], axis=1)
            rows.loc[is_inf, "number 0"] = np.nan

        if "neighbors" not in self.own:
            found = self.all.statistic(rows[self.columns])
            is_known = np.zeros(len(rows), bool)
            for key in self.places:
                is_known |= self._is_of(rows, key)
            return np.where(is_known, found, np.nan)

        def of_group(key, oracle, which):
            if key in self.small:
                return np.nan
            return oracle.statistic(rows.iloc[which][self.columns])

        return self._by_group(rows, of_group)

    def score_samples(self, rows):
        """P-values of new rows, in their groups."""
        statistic = self.statistic(rows)

        def of_group(key, oracle, which):
            if key in self.small:
                return np.nan
            return [oracle._p_value(value) for value in statistic[which]]

        return self._by_group(rows, of_group)

    @property
    def p_values_(self):
        """Those of the nominal rows, each without itself; NaN where there is none."""
        found = np.full(len(self.nominal), np.nan)
        of_all = None if "neighbors" in self.own else _among_themselves(self.all)
        for key, oracle in self.oracles.items():
            if key in self.small:
                continue
            places = self.places[key]
            own = _among_themselves(oracle) if of_all is None else of_all[places]
            p_values = np.array(list(map(oracle._p_value, own)))
            p_values[oracle.measured] = [
                oracle._p_value(value, scores_nominal_rows=True) for value in oracle._known
            ]
            found[places] = p_values
        of_input = np.full(len(self.is_in_group), np.nan)
        of_input[self.is_in_group] = found
        return of_input

    def status(self, rows):
        """Why rows have no p-value, of rows without values that are not measured."""
        keys = [tuple(row) for row in rows[self.by].itertuples(index=False)]
        known = set(self.places)
        return [
            "no group"
            if any(pd.isna(value) for value in key)
            else "unknown group"
            if key not in known
            else "small group"
            if key in self.small
            else "ok"
            for key in keys
        ]
