"""The paper's experiments: arithmetic against loops and closed forms, and the command."""

import base64
import csv
import logging
import re
import warnings
from pathlib import Path
from urllib.error import URLError

import dask
import numpy as np
import pytest
import sklearn.datasets
from click.testing import CliRunner
from matplotlib.figure import Figure
from scipy.stats import kstest, mannwhitneyu, multivariate_normal, norm
from sklearn.svm import OneClassSVM

import paper_page
from lpe_dask import LPE
from lpe_dask.cli import commands
from lpe_dask.paper import (
    banana,
    boxes,
    claims,
    clairvoyant,
    data,
    densities,
    fits,
    growth,
    level_sets,
    manifold,
    one_class_svm,
    page,
    real_data,
    run,
    theory,
)
from lpe_dask.paper.claims import (
    FAILS,
    HOLDS,
    LEVELS,
    OPEN,
    UNDECIDED,
    Experiment,
    Row,
    Verdict,
    agrees_with_one_draw,
    all_of,
    is_close,
    is_controlled,
    is_greater,
    is_within,
    not_judged,
    over_choices,
    vanishes,
)
from lpe_dask.pvalues.roc import Curve, area, detection_at

SETS = ("banana", "wine", "ionosphere", "usps")


def write_data(folder, *names):
    """Write small sets of the same form as the real ones."""
    rng = np.random.default_rng(0)
    for name in names:
        if name == "usps":
            arrays = {}
            for part, n_zeros in [("train", 500), ("test", 300)]:
                digits = np.array([0] * n_zeros + [3] * 40)
                rows = rng.integers(0, 100, (len(digits), 4)) + 50 * digits[:, None]
                arrays |= {f"X_{part}": rows.astype(np.int16), f"y_{part}": digits}
        else:
            n_nominal, n_others, d = {"banana": (300, 250, 2), "wine": (59, 119, 13)}.get(
                name, (225, 126, 5)
            )
            rows = rng.standard_normal((n_nominal + n_others, d))
            rows[n_nominal:] += 2
            first, second = {"wine": (0, 1), "banana": (-1, 1)}.get(name, (1, -1))
            arrays = {"X": rows, "y": np.repeat([first, second], [n_nominal, n_others])}
        if name == "banana":
            arrays["realisation_train"] = np.r_[0:200, 300:480]
        np.savez(folder / f"{name}.npz", **arrays)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    write_data(place, *SETS)
    return place


@pytest.fixture
def euclidean_only(monkeypatch):
    monkeypatch.setattr(real_data, "METRICS", {"Euclidean": {}})
    monkeypatch.setattr(real_data, "PAPER_METRIC", "Euclidean")


@pytest.fixture
def coarse(monkeypatch):
    """Grids and sweeps that take no time."""
    monkeypatch.setattr(densities.make_cells, "__defaults__", (40.0, 0.25))
    monkeypatch.setattr(one_class_svm, "NUS", (0.1, 0.5))
    monkeypatch.setattr(level_sets, "N_RANK_DRAWS", 50)
    monkeypatch.setattr(growth, "SIZES", (50, 200))
    monkeypatch.setattr(growth, "N_OF_EACH", 50)
    monkeypatch.setattr(manifold, "SIZES", (50, 200))


def paper(*arguments):
    return CliRunner().invoke(commands.cli, ["paper", *map(str, arguments)])


def by_claim(experiment, pattern):
    """The one row whose claim matches."""
    (row,) = [row for row in experiment.rows if re.search(pattern, row.claim)]
    return row


# Averages


def test_average__is_the_mean_with_its_error():
    values = [1.0, 4.0, 4.0, 7.0]

    found = claims.average(iter(values))

    assert found.mean == 4
    assert found.deviation == pytest.approx(np.sqrt((9 + 9) / 3))
    assert found.standard_error == pytest.approx(found.deviation / 2)
    assert found.n_draws == 4


def test_average_curve__is_the_mean_at_each_level():
    curves = [
        Curve(np.array([0.0, 0.0, 0.5, 1.0]), np.array([0.0, 0.2, 0.9, 1.0])),
        Curve(np.array([0.0, 0.25, 1.0]), np.array([0.0, 0.8, 1.0])),
    ]

    found = claims.average_curve(curves)

    for level, mean in zip(*found, strict=True):
        total = 0.0
        for curve in curves:
            total += float(detection_at(curve, np.array([level]))[0])
        assert mean == pytest.approx(total / 2)
    assert len(found.false_alarm) == 201


# Densities


def test_densities__are_those_of_equation_f0f1():
    rows = np.array([[8.0, 0.0], [-7.0, 3.0], [0.5, -2.0]])

    def gaussian(row, center, deviations):
        return np.prod([norm.pdf(x, m, s) for x, m, s in zip(row, center, deviations)])  # noqa: B905

    f0 = [gaussian(r, (8, 0), (1, 3)) / 2 + gaussian(r, (-8, 0), (1, 3)) / 2 for r in rows]
    f1 = [gaussian(row, (0, 0), (7, 7)) for row in rows]
    assert np.exp(densities.nominal_log_density(rows)) == pytest.approx(f0)
    assert np.exp(densities.anomalous_log_density(rows)) == pytest.approx(f1)


def test_draws__have_the_moments_of_the_densities():
    rng = np.random.default_rng(0)

    nominal, anomalous = (
        densities.draw_nominal(rng, 20000),
        densities.draw_anomalous(rng, 20000),
    )

    assert nominal.mean(axis=0) == pytest.approx([0, 0], abs=0.3)
    assert nominal.var(axis=0) == pytest.approx([65, 9], rel=0.03)
    assert anomalous.var(axis=0) == pytest.approx([49, 49], rel=0.03)


def test_make_cells__hold_all_of_both_masses():
    cells = densities.make_cells(40.0, 0.25)

    for log_density in (cells.nominal, cells.anomalous):
        assert np.exp(log_density).sum() * 0.25**2 == pytest.approx(1)


def test_density_level__bounds_the_share_of_the_mass():
    x = np.arange(-8, 8, 1e-3) + 5e-4

    level = densities.density_level(norm.logpdf(x), 0.95)

    assert level == pytest.approx(norm.logpdf(norm.ppf(0.975)), abs=1e-3)


def test_density_level__of_the_mixture_is_reached_by_that_share_of_its_rows():
    cells = densities.make_cells(20.0, 0.1)
    rows = densities.draw_nominal(np.random.default_rng(0), 40000)

    level = densities.density_level(cells.nominal, 0.95)

    inside = (densities.nominal_log_density(rows) >= level).mean()
    assert inside == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / 40000))


def test_clairvoyant_curve__is_the_closed_form_of_two_gaussians():
    """N(0, 1) against N(1.5, 1): rows beyond a bound are flagged."""
    x = np.arange(-9, 11, 1e-3)

    curve = densities.clairvoyant_curve(norm.logpdf(x), norm.logpdf(x, 1.5))

    assert detection_at(curve, LEVELS) == pytest.approx(
        norm.sf(norm.isf(LEVELS) - 1.5), abs=1e-3
    )
    assert area(curve) == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=1e-6)


def test_level_set_curve__is_the_closed_form_of_two_gaussians():
    """The level sets of N(0, 1) are intervals around 0."""
    x = np.arange(-9, 11, 1e-3)

    curve = densities.level_set_curve(norm.logpdf(x), norm.logpdf(x, 1.5))

    bounds = norm.isf(LEVELS / 2)
    expected = norm.cdf(-bounds - 1.5) + norm.sf(bounds - 1.5)
    assert detection_at(curve, LEVELS) == pytest.approx(expected, abs=1e-3)
    assert area(curve) < area(
        densities.clairvoyant_curve(norm.logpdf(x), norm.logpdf(x, 1.5))
    )


@pytest.mark.slow
def test_exact_curves__have_the_areas_of_a_simulation():
    """How often an anomaly ranks before a nominal row, counted with SciPy's densities."""
    rng = np.random.default_rng(0)
    n_rows, centers = 200_000, np.array([[8.0, 0.0], [-8.0, 0.0]])
    nominal = centers[rng.integers(2, size=n_rows)] + rng.normal(0, [1, 3], (n_rows, 2))
    anomalous = rng.normal(0, 7, (n_rows, 2))

    def f0(rows):
        return sum(multivariate_normal(c, [1, 9]).pdf(rows) for c in centers) / 2

    def simulated(rank):
        share = mannwhitneyu(rank(nominal), rank(anomalous)).statistic / n_rows**2
        return pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / n_rows))

    cells = densities.make_cells()
    of_ratio = area(densities.clairvoyant_curve(cells.nominal, cells.anomalous))
    of_sets = area(densities.level_set_curve(cells.nominal, cells.anomalous))
    f1 = multivariate_normal([0, 0], [49, 49])
    assert of_ratio == simulated(lambda rows: f0(rows) / f1.pdf(rows))
    assert of_sets == simulated(f0)
    assert (round(of_ratio, 4), round(of_sets, 4)) == (0.9423, 0.9413)


def test_level_sets_p_values__are_the_mass_of_what_is_less_likely():
    x = np.arange(-9, 9, 1e-3)

    p_values = densities.LevelSets.of(norm.logpdf(x)).p_values(
        norm.logpdf([0.0, 1.0, -3.0])
    )

    assert p_values == pytest.approx(2 * norm.sf([0.0, 1.0, 3.0]), abs=1e-3)


def test_contours__find_the_area_outside_of_the_contour():
    contour = boxes.contours(densities.make_cells(20.0, 0.1))[12.0]

    found = detection_at(contour, np.array([0.05]))

    # Each half of the mixture holds nearly an ellipse of mass 0.95: r^2 = chi^2 of 2.
    ellipses = 2 * np.pi * 3 * -2 * np.log(0.05)
    assert found == pytest.approx(1 - ellipses / 24**2, abs=0.002)


def test_contour_gaps__are_0_along_the_exact_curve():
    contour = Curve(np.array([0.0, 1.0]), np.array([0.5, 1.0]))
    rates = [(0.04, 0.52), (0.08, 0.54), (0.06, 0.51)]

    assert boxes.contour_gaps(contour, rates) == pytest.approx([0.0, 0.0, 0.02])


def test_by_box__gives_each_box_its_rows():
    n_boxes = len(boxes.HALF_SIDES)
    p_values = np.concatenate([[0.9, 0.8], np.arange(n_boxes) / 100])
    scored = fits.Scored(p_values, p_values, np.arange(len(p_values)) >= 2)

    found = boxes.by_box(scored)

    assert [of_box.p_values.tolist() for of_box in found.values()] == [
        [0.9, 0.8, k / 100] for k in range(n_boxes)
    ]
    assert boxes.in_boxes(np.array([[1.0, -0.5]]))[3].tolist() == [12.0, -6.0]


# Single draws


def test_fit_and_score__is_what_the_detector_gives():
    rng = np.random.default_rng(0)
    training, nominal, anomalies = (rng.standard_normal((n, 2)) for n in (30, 5, 4))

    found = fits.fit_and_score(training, nominal, anomalies, n_neighbors=3)

    model = LPE(n_neighbors=3).fit(training)
    rows = np.concatenate([nominal, anomalies])
    assert found.p_values.tolist() == model.score_samples(rows).tolist()
    assert found.statistic.tolist() == model.statistic(rows).tolist()
    assert found.is_anomaly.tolist() == [False] * 5 + [True] * 4


@pytest.mark.parametrize(
    ("parameters", "least"),
    [({"n_neighbors": 1}, 0.0), ({"graph": "radius", "radius": 1.0}, 0.25)],
)
def test_fit_and_score__knows_the_least_p_value(parameters, least):
    """One of four rows has no neighbor within the radius, as a row far out."""
    training = np.array([[0.0], [1.0], [2.0], [50.0]])

    found = fits.fit_and_score(training, training, np.array([[-99.0]]), **parameters)

    assert found.least_p_value == found.p_values[-1] == least


def test_real_data__says_where_no_row_can_be_flagged(folder, euclidean_only, monkeypatch):
    def unable(*parts, **parameters):
        scored = fits.fit_and_score(*parts, **parameters)
        return scored._replace(least_p_value=0.06)

    monkeypatch.setattr(real_data, "fit_and_score", unable)

    experiment = real_data.run(n_draws=2, folder=folder)

    row = by_claim(experiment, "Wine, Euclidean distance: missed")
    assert "in 100% of the splits no row can be flagged at 0.05" in row.procedure


def test_scored__counts_equality_with_alpha_as_flagged():
    scored = fits.Scored(
        np.array([0.05, 0.5, 0.0, 0.1]), np.zeros(4), np.array([False, False, True, True])
    )

    assert scored.flagged(0.05) == (0.5, 0.5)
    assert scored.curve().detection.tolist() == [0, 0.5, 0.5, 1, 1]


def test_generators__do_not_depend_on_the_number_of_draws():
    few = [rng.random() for rng in fits.generators(1, 2)]
    many = [rng.random() for rng in fits.generators(1, 5)]
    other = [rng.random() for rng in fits.generators(2, 2)]

    assert few == many[:2]
    assert len({*many, *other}) == 7


def test_swept_curve__has_a_point_for_each_nu(monkeypatch):
    rng = np.random.default_rng(0)
    training, test = rng.standard_normal((40, 2)), rng.standard_normal((30, 2)) * 2
    monkeypatch.setattr(one_class_svm, "NUS", (0.3,))

    curve = one_class_svm.swept_curve((training, test[:15], test[15:]), 2.0)

    is_flagged = OneClassSVM(gamma=0.5, nu=0.3).fit(training).predict(test) == -1
    rates = [is_flagged[:15].mean(), is_flagged[15:].mean()]
    assert np.stack(curve, axis=1).tolist() == [[0, 0], rates, [1, 1]]


def test_swept_curve__never_falls():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 2))

    curve = one_class_svm.swept_curve((rows[:20], rows[:30], rows[30:]), 0.5)

    assert (np.diff(curve.false_alarm) >= 0).all()
    assert (np.diff(curve.detection) >= 0).all()


def test_decision_curve__ranks_what_is_far_out_first():
    training = np.random.default_rng(0).standard_normal((50, 2))
    nominal, anomalies = np.array([[0, 0.1], [0.2, 0]]), np.array([[6, 0], [2.5, 2.5]])

    curve = one_class_svm.decision_curve((training, nominal, anomalies), 2.0, 0.1)

    assert area(curve) == 1


@pytest.mark.parametrize("by_column", [True, False])
def test_to_unit_range__is_the_range_of_each_column_or_of_all(by_column):
    rows = np.array([[0.0, 10.0, 7.0], [5.0, 20.0, 7.0]])

    found = real_data.to_unit_range(rows, by_column=by_column)

    expected = [[0, 0, 0], [1, 1, 0]] if by_column else [[0, 0.5, 0.35], [0.25, 1, 0.35]]
    np.testing.assert_allclose(found, expected)


# Verdicts


HERE = claims.Average(0.10, 0.02, 100)  # with a standard error of 0.002


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 0.1041, HOLDS),
        (0.0, 0.1039, UNDECIDED),
        (0.0, 0.0961, UNDECIDED),
        (0.0, 0.0959, FAILS),
        (0.0959, 1.0, HOLDS),
        (0.0961, 1.0, UNDECIDED),
        (0.1041, 1.0, FAILS),
    ],
)
def test_is_within__leaves_open_what_two_standard_errors_do_not_decide(low, high, expected):
    assert is_within(HERE, low, high, "so it is") == (expected, "so it is")


def test_verdicts__follow_the_rules():
    assert is_controlled(HERE, 0.1, 0.105) == (
        HOLDS,
        "the bound (floor(a n) + 1) / (n + 1) is 0.1050; about the level means at least "
        "0.0500",
    )
    assert is_controlled(HERE, 0.22, 0.22).verdict == FAILS
    assert is_close(HERE, "gap") == (FAILS, "gap; close means within 0.02")
    assert agrees_with_one_draw(HERE, 0.135).verdict == HOLDS
    assert agrees_with_one_draw(HERE, 0.145).verdict == FAILS
    assert is_greater(HERE, "gain") == (HOLDS, "gain: +0.1000 ± 0.0020")
    assert is_greater(claims.Average(0.003, 0.02, 100), "gain").verdict == UNDECIDED
    assert is_greater(claims.Average(-0.005, 0.02, 100), "gain").verdict == FAILS
    assert is_greater(claims.Average(0.0, 0.0, 100), "gain").verdict == FAILS
    assert not_judged("no number") == (OPEN, "no number")


def test_all_of__fails_with_one_part():
    holds, fails, undecided = (Verdict(name, "") for name in (HOLDS, FAILS, UNDECIDED))

    assert all_of([holds, holds], "why") == (HOLDS, "why")
    assert all_of([holds, undecided], "why") == (UNDECIDED, "why")
    assert all_of([holds, undecided, fails], "why") == (FAILS, "why")


@pytest.mark.parametrize(
    ("other", "expected"), [(HOLDS, HOLDS), (UNDECIDED, UNDECIDED), (FAILS, UNDECIDED)]
)
def test_over_choices__is_undecided_where_a_free_choice_decides(other, expected):
    judged = {"±8": (HERE, Verdict(other, "no")), "±12": (HERE, Verdict(HOLDS, "yes"))}

    verdict, reason = over_choices(judged, "±12", "by the box")

    assert verdict == expected
    assert reason == f"yes; by the box: ±8 0.1000 {other}, ±12 0.1000 holds"


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.4, 0.3, 0.2), HOLDS),  # 4^(-1/10) is 0.871
        ((0.4, 0.39, 0.2), FAILS),
        ((0.4, 0.347, 0.2), UNDECIDED),
        ((0.0, 0.0, 0.0), FAILS),
    ],
)
def test_vanishes__needs_a_fall_at_each_step(means, expected):
    values = [[mean - 0.01, mean, mean + 0.01] if mean else [0.0] * 3 for mean in means]
    noisy = [values[0], values[1][::-1], values[2]]

    found = vanishes(noisy, (50, 200, 800))

    assert found.verdict == expected
    assert found.reason.startswith(f"n=50: {means[0]:.4f} ± ")


# Data


def test_data__is_read_from_files(folder):
    banana_set, wine = data.load_banana(folder), data.load_wine(folder)
    ionosphere, usps = data.load_ionosphere(folder), data.load_usps(folder)

    assert banana_set.rows.shape == (550, 2)
    assert banana_set.is_nominal.sum() == 300
    assert len(banana_set.realisation) == 380
    assert wine.is_nominal.sum() == 59
    assert ionosphere.is_nominal.sum() == 225
    assert usps.rows.shape == (880, 4)
    assert usps.is_nominal.sum() == 800
    assert usps.rows.dtype == np.float64
    for name, of_set in zip(SETS, (banana_set, wine, ionosphere, usps), strict=True):
        assert f"{name}.npz" in of_set.source


def test_data__of_the_real_files_has_the_published_counts(data_folder):
    counts = {
        load: load(data_folder).is_nominal.sum()
        for load in (data.load_banana, data.load_wine, data.load_ionosphere, data.load_usps)
    }

    assert list(counts.values()) == [2924, 59, 225, 1194 + 359]


def fake_openml(name=None, version=None, data_id=None, **options):
    """What OpenML has, in small: classes are text, and digits are counted from 1."""
    assert options == {"as_frame": False, "parser": "auto"}
    rng = np.random.default_rng(0)
    if data_id == data.USPS_ID:
        digits = np.array(["1"] * 800 + ["4"] * 60 + ["10"] * 40)
        rows = rng.random((900, 4)) - (digits == "1")[:, None]
        return sklearn.utils.Bunch(data=rows, target=digits.astype(object))
    assert version == 1
    n_first, n_second, names = {
        "banana": (250, 300, ["2", "1"]),
        "ionosphere": (126, 225, ["b", "g"]),
    }[name]
    rows = rng.standard_normal((n_first + n_second, 2))
    target = np.repeat(names, [n_first, n_second]).astype(object)
    return sklearn.utils.Bunch(data=rows, target=target)


def test_data__is_fetched_without_a_folder(monkeypatch):
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fake_openml)

    banana_set, ionosphere = data.load_banana(None), data.load_ionosphere(None)
    usps, wine = data.load_usps(None), data.load_wine(None)

    assert banana_set.is_nominal.tolist() == [False] * 250 + [True] * 300
    assert banana_set.realisation is None
    assert ionosphere.is_nominal.sum() == 225
    assert usps.is_nominal.tolist() == [True] * 800 + [False] * 100
    assert wine.rows.shape == (178, 13)
    assert wine.is_nominal.sum() == 59
    assert "scikit-learn" in wine.source
    assert all("OpenML" in found.source for found in (banana_set, ionosphere, usps))


def test_data__says_when_there_is_no_network(monkeypatch):
    def offline(**options):
        warnings.warn("a retry", UserWarning, stacklevel=2)
        raise URLError("no route to host")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)

    with pytest.raises(
        data.DataMissing, match=r"banana.* no route to host.* --data FOLDER"
    ):
        data.load_banana(None)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"no archive"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-30]),
        lambda path: np.savez(path, X=np.eye(2)),
    ],
)
def test_data__says_which_file_cannot_be_read(folder, spoil):
    spoil(folder / "wine.npz")

    with pytest.raises(data.DataMissing, match=r"wine\.npz cannot be read .* contain X, y"):
        data.load_wine(folder)


# Experiments


def test_level_sets__has_a_row_for_each_claim(coarse):
    experiment = level_sets.run(n_draws=3)

    again = level_sets.run(n_draws=3)
    assert [row.here for row in experiment.rows] == [row.here for row in again.rows]
    assert len(experiment.figure.axes) == 3
    assert len(experiment.rows) == 6
    assert by_claim(experiment, "equal decisions").here.mean > 0.85
    assert by_claim(experiment, "type I error").here.mean == pytest.approx(0.055, abs=0.05)
    assert "0.0547" in experiment.rows[0].reason


@pytest.mark.parametrize("claim", ["equal decisions", "rate of misses"])
def test_level_sets__says_what_the_box_decides(coarse, claim):
    experiment = level_sets.run(n_draws=3)

    listed = by_claim(experiment, claim).reason.partition("by the box: ")[2].split(", ")
    assert [part.split()[0] for part in listed] == [f"±{s:g}" for s in boxes.HALF_SIDES]
    verdicts = {part.split(maxsplit=2)[2] for part in listed}
    assert verdicts <= {HOLDS, FAILS, UNDECIDED}


def test_banana__compares_with_the_svm(coarse, folder):
    experiment = banana.run(n_draws=2, folder=folder)

    axes = experiment.figure.axes
    assert len(axes) == 3
    assert len(axes[1].get_legend().get_texts()) == len(banana.ALL_N_NEIGHBORS) + 2
    assert "108 nominal test rows, 183 anomalies" in experiment.rows[0].procedure
    better = by_claim(experiment, "K-LPE with K = 2 to 12 is better")
    assert re.findall(r"K=(\d+)", better.reason) == ["2", "4", "6", "8", "10", "12"]
    wide = by_claim(experiment, "by the mean of the K distances")
    assert wide.verdict == OPEN
    numbers = re.findall(r"K=(\d+) (0\.\d+)", wide.reason)
    assert [k for k, _ in numbers] == ["5", "10", "20", "40"] * 2
    of_means = [float(area) for _, area in numbers[:4]]
    assert wide.here.mean == pytest.approx(max(of_means) - min(of_means), abs=2e-4)
    of_kth = [float(area) for _, area in numbers[4:]]
    by_kth = float(re.search(r"by which it is (-?[0-9.]+)", wide.reason)[1])
    assert by_kth == pytest.approx(max(of_kth) - min(of_kth), abs=2e-4)
    assert by_claim(experiment, "alpha = 0.05").paper == "0.06"
    marked = by_claim(experiment, "realisation")
    assert "91 nominal test rows, 180 anomalies" in marked.procedure
    assert by_claim(experiment, "taken literally").verdict == OPEN
    assert experiment.sources == ("Banana: banana.npz, all rows",)


@pytest.mark.parametrize(
    ("behind", "expected"), [(0.0, HOLDS), (0.003, UNDECIDED), (0.005, FAILS)]
)
def test_is_within__of_a_distance_from_the_best_holds_for_the_best_only(behind, expected):
    here = claims.Average(behind, 0.02 * (behind > 0), 100)

    found = is_within(here, -np.inf, 0.0, "why")

    assert found == (expected, "why")


def test_banana__does_without_a_marked_realisation(coarse, monkeypatch):
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fake_openml)

    experiment = banana.run(n_draws=2)

    assert not [row for row in experiment.rows if "realisation" in row.claim]
    assert "OpenML" in experiment.sources[0]


def test_clairvoyant__compares_with_the_exact_curves(coarse):
    experiment = clairvoyant.run(n_draws=3)

    gap = by_claim(experiment, "very close")
    assert "of the clairvoyant curve 0.942" in gap.reason
    auc = by_claim(experiment, "AUC with n=160").here.mean
    assert gap.here.mean == pytest.approx(0.9423 - auc, abs=2e-4)
    assert by_claim(experiment, "larger n").here.mean > 0
    names = [text.get_text() for text in experiment.figure.axes[2].get_legend().get_texts()]
    assert [name.split(":")[0] for name in names] == [
        *["clairvoyant", "level sets of f0", "K-LPE, n = 40", "K-LPE, n = 160"]
    ]


@pytest.mark.slow
def test_theory__judges_what_is_claimed_for_all_n(coarse, folder):
    experiment = theory.run(n_draws=3, folder=folder)

    keys = [row.key for row in experiment.rows]
    assert keys == ["consistent", "type-2", "geodesic-faster", "neighbor-rule"]
    consistent, type_2, faster, rule = experiment.rows
    assert re.match(r"n=50: .* n=200: .* at least like n\^\(-1/10\)", consistent.reason)
    assert type_2.reason.count("±8 ") == type_2.reason.count("±20 ") == 1
    assert faster.reason.count("K'=") == len(manifold.PITCHES) * len(manifold.ALL_N_LINKS)
    for name in ("equation (f0f1)", "Banana", "Ionosphere", "USPS"):
        assert name in rule.reason


def test_theory__does_without_data_that_cannot_be_had(coarse, tmp_path):
    rule = theory.run(n_draws=2, folder=tmp_path).rows[-1]

    assert "equation (f0f1)" in rule.reason
    assert "Banana" not in rule.reason


def test_sheet__is_rolled_without_stretching():
    """Rows that are near each other are as far apart as on the plane."""
    sheet = manifold.Sheet(2 * np.pi)
    rng = np.random.default_rng(0)

    rows, p_values = sheet.draw(rng, 200)

    on_plane = np.random.default_rng(0).standard_normal((200, 2)) * [13, 3]
    far = np.linalg.norm(on_plane[:, None] - on_plane, axis=2)
    near = (far < 0.5) & (far > 0)
    in_space = np.linalg.norm(rows[:, None] - rows, axis=2)
    assert near.sum() > 20
    assert in_space[near] == pytest.approx(far[near], rel=0.02)
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_real_data__has_each_set_with_each_metric(folder):
    experiment = real_data.run(n_draws=2, folder=folder)

    assert [ax.get_title().split()[0] for ax in experiment.figure.axes] == [
        *["Wine", "Ionosphere", "USPS"]
    ]
    for name in ("Wine", "Ionosphere", "USPS"):
        for metric in real_data.METRICS:
            assert by_claim(experiment, f"{name}, {metric} distance: AUC").here.mean > 0.5
    row = by_claim(experiment, "USPS, geodesic distance: missed")
    assert row.paper == "0.061"
    assert "n=400, 367 nominal test rows, 33 anomalies" in row.procedure


def test_real_data__judges_only_what_the_paper_gives_a_number_for(folder):
    experiment = real_data.run(n_draws=2, folder=folder)

    judged = {row.key for row in experiment.rows if row.verdict != OPEN}
    pairs = [f"usps-{kind}-{which}" for kind in ("geodesic", "svm") for which in (0, 1)]
    assert judged == {*pairs, "usps-contrast-0", "usps-contrast-1"}
    assert all(row.paper == "-" for row in experiment.rows if row.key not in judged)


def test_real_data__judges_both_numbers_of_the_svm(folder, monkeypatch):
    """As the paper quotes them, and against K-LPE on the same splits."""
    monkeypatch.setattr(real_data, "svm_rates", lambda *arguments: (0.9, 0.999))

    experiment = real_data.run(n_draws=2, folder=folder)

    rows = {row.key: row for row in experiment.rows}
    alarms, misses = rows["usps-svm-0"], rows["usps-svm-1"]
    assert (alarms.paper, alarms.here.mean, alarms.verdict) == ("0.09", 0.9, FAILS)
    assert (misses.paper, misses.verdict) == ("0.07", FAILS)
    assert misses.here.mean == pytest.approx(0.001)
    assert rows["usps-contrast-0"].verdict == HOLDS
    ours = rows["usps-geodesic-1"].here.mean
    assert rows["usps-contrast-1"].here.mean == pytest.approx(0.001 - ours)


def test_real_data__goes_on_without_one_set(folder, euclidean_only):
    (folder / "ionosphere.npz").unlink()

    experiment = real_data.run(n_draws=2, folder=folder)

    assert len(experiment.figure.axes) == 2
    (skipped,) = experiment.skipped
    assert re.match(r"Ionosphere: .*ionosphere\.npz cannot be read", skipped)


def test_real_data__needs_one_set(tmp_path):
    with pytest.raises(data.DataMissing, match=r"Wine: .*; Ionosphere: .*; USPS: "):
        real_data.run(n_draws=2, folder=tmp_path)


# The command


@pytest.fixture
def quick(monkeypatch, coarse, euclidean_only):
    """Sweeps and grids that take no time, and Euclidean distances only."""
    monkeypatch.setattr(banana, "ALL_N_NEIGHBORS", (2, 6))
    monkeypatch.setattr(banana, "WIDTHS", (2 / 3, 1.5, 4.5))
    monkeypatch.setattr(page, "RESOLUTION", 20)


@pytest.fixture
def no_page(monkeypatch):
    """Nothing is drawn or written."""
    monkeypatch.setattr(run, "write_page", lambda *arguments: None)


def test_paper__writes_figures_a_table_and_a_page(folder, tmp_path, quick):
    out = tmp_path / "out"

    result = paper("--data", folder, "--output", out, "--draws", 2)

    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        *[f"figure-{number}.png" for number in (1, 2, 3, 4, 5)],
        *["index.html", "table.csv"],
    ]
    text = (out / "index.html").read_text(encoding="utf-8")
    pictures = re.findall(r"data:image/png;base64,([^\"]+)\"", text)
    assert [base64.b64decode(picture) for picture in pictures] == [
        path.read_bytes() for path in sorted(out.glob("*.png"))
    ]
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert "over 2 draws only" in text
    assert "Banana: banana.npz, all rows" in text
    with (out / "table.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["figure"] for row in table} == set("12345")
    assert {row["verdict"] for row in table} <= {HOLDS, FAILS, UNDECIDED, OPEN}
    for column in ("key", "claim"):
        assert len({row[column] for row in table}) == len(table)
    assert all(row["procedure"] and row["reason"] for row in table)
    counted = re.findall(r": (\d+) of (\d+)$", result.stdout, re.MULTILINE)
    assert sum(int(count) for count, _ in counted) == int(counted[0][1]) == len(table)
    *lines, end = result.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"Figure {n}" for n in (1, 2, 3, 4, 5)
    ]
    assert end == f"written to {out}: open {out / 'index.html'}"
    assert logging.getLogger("lpe_dask").level == logging.NOTSET
    assert logging.getLogger("lpe_dask.paper").level == logging.NOTSET


@pytest.mark.slow
def test_paper__shows_each_fit_when_debugging(folder, tmp_path, quick, no_page):
    result = paper("--data", folder, "--output", tmp_path / "out", "--draws", 2, "--debug")

    assert "fitted 200 nominal rows" in result.stderr


def test_paper__replaces_an_earlier_run_by_what_is_not_missing(folder, tmp_path, quick):
    (folder / "banana.npz").unlink()
    (folder / "usps.npz").unlink()
    out = tmp_path / "out"
    out.mkdir()
    (out / "figure-2.png").write_text("of an earlier run")

    result = paper("--data", folder, "--output", out, "--draws", 2, "--overwrite")

    assert result.exit_code == 0
    assert re.search(r"Figure 2 is left out: .*banana\.npz", result.stderr)
    assert re.search(r"Figure 4, left out: USPS: .*usps\.npz", result.stderr)
    text = (out / "index.html").read_text(encoding="utf-8")
    assert "What is missing" in text
    assert "Figure 2: " in text
    assert "Figure 4, USPS: " in text
    assert not (out / "figure-2.png").exists()
    assert (out / "figure-4.png").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out"]


def test_paper__leaves_an_existing_folder_alone(folder, tmp_path):
    (tmp_path / "out").mkdir()

    result = paper("--data", folder, "--output", tmp_path / "out")

    assert result.exit_code == 2
    assert "exists. Give another folder, or replace it" in result.stderr


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda out: (out.mkdir(), (out / "thesis.tex").touch()),
            "not the output of a run: thesis.tex",
        ),
        (lambda out: out.touch(), "is a file"),
    ],
)
def test_paper__never_replaces_anything_else(folder, tmp_path, make, message):
    make(tmp_path / "out")

    result = paper("--data", folder, "--output", tmp_path / "out", "--overwrite")

    assert result.exit_code == 2
    assert message in result.stderr
    assert (tmp_path / "out").exists()


def test_paper__refuses_a_folder_that_is_not_there(tmp_path):
    result = paper("--data", tmp_path / "nowhere", "--output", tmp_path / "out")

    assert result.exit_code == 2
    assert "there is no folder" in result.stderr
    assert not (tmp_path / "out").exists()


def test_paper__leaves_nothing_when_it_fails(folder, tmp_path, monkeypatch):
    def fail(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(level_sets, "run", fail)

    result = paper("--data", folder, "--output", tmp_path / "out")

    assert result.exit_code == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_run_paper__refuses_a_single_draw(tmp_path):
    with pytest.raises(ValueError, match=r"draws=1 .* Give at least 2"):
        run.run_paper(tmp_path / "out", draws=1)


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_paper__says_how_to_install_what_is_missing(tmp_path, monkeypatch, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)

    result = paper("--output", tmp_path / "out")

    assert result.exit_code == 2
    assert f"need {module}" in result.stderr
    assert 'pip install "lpe-dask[plot]"' in result.stderr


def test_write_page__escapes_what_is_written_into_it(tmp_path):
    row = Row(
        "a",
        "Fig. 1",
        "a < b & c",
        "-",
        claims.Average(0.5, 0.1, 4),
        "n=3",
        OPEN,
        "<b>none</b>",
    )
    experiment = Experiment(1, "A title", "A caption", Figure(), [row], remarks=["1 < 2"])

    page.write_page(Path(tmp_path), [experiment], ["no <data>"], None)

    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "a &lt; b &amp; c" in text
    assert "&lt;b&gt;none&lt;/b&gt;" in text
    assert "no &lt;data&gt;" in text
    assert "1 &lt; 2" in text
    assert "0.5000 ± 0.0500" in text
    assert "--draws" not in text


# The page of the documentation


def test_page__is_made_from_the_table_beside_it():
    records = paper_page.read_table(paper_page.TABLE)

    assert paper_page.PAGE.read_text(encoding="utf-8") == paper_page.render(records), (
        "docs/paper.md is not what docs/paper.csv gives: run `make paper`"
    )


def test_page__has_the_exact_areas_of_today():
    """What is cheap to compute is compared on every run; see below for the rest."""
    cells = densities.make_cells()
    curves = [densities.clairvoyant_curve, densities.level_set_curve]
    clairvoyant_area, limit_area = (area(c(cells.nominal, cells.anomalous)) for c in curves)

    reason = stored_rows()["clairvoyant"]["reason"]
    assert f"clairvoyant curve {clairvoyant_area:.4f}, of the level" in reason
    assert f"level sets of f0 {limit_area:.4f};" in reason


@pytest.mark.slow
def test_page__has_the_numbers_of_wine(data_folder, monkeypatch):
    """One experiment with all of its draws."""
    wine = [setting for setting in real_data.SETTINGS if setting.name == "Wine"]
    monkeypatch.setattr(real_data, "SETTINGS", wine)

    with dask.config.set(scheduler="sync"):
        experiment = real_data.run(folder=data_folder)

    stored = stored_rows()
    for row in experiment.rows:
        assert f"{row.here.mean:.6g}" == stored[row.key]["here"]
        assert (row.verdict, row.reason) == (
            stored[row.key]["verdict"],
            stored[row.key]["reason"],
        )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_page__has_all_numbers_of_the_command(data_folder, tmp_path):
    assert paper("--data", data_folder, "--output", tmp_path / "out").exit_code == 0

    table = (tmp_path / "out" / "table.csv").read_bytes()
    assert table == paper_page.TABLE.read_bytes()


def stored_rows():
    return {row["key"]: row for row in paper_page.read_table(paper_page.TABLE)}
