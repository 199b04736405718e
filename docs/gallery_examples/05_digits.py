"""
Images: an unknown digit
========================

Scanned digits of 8 x 8 pixels, of which the model has seen all kinds but nines. A row is an
image, a column a pixel. All pixels have one unit, so that distances need no scale.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import lpe_dask

digits, kinds = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
digits, kinds = digits[order], kinds[order]
nominal = digits[kinds != 9][:1000]
new = np.concatenate([digits[kinds != 9][1000:], digits[kinds == 9]])
new_kinds = np.concatenate([kinds[kinds != 9][1000:], kinds[kinds == 9]])
is_nine = new_kinds == 9

model = lpe_dask.LPE(
    n_neighbors=3, aggregation="mean", calibration="conformal", alpha=0.05, random_state=0
).fit(nominal)  # fmt: skip
p_values = model.score_samples(new)
print(f"{(p_values[is_nine] <= 0.05).mean():.0%} of the nines are flagged,")
print(f"and {(p_values[~is_nine] <= 0.05).mean():.1%} of the other digits")

# %%
# The most unusual images, each above its nearest nominal one, and below it how much each
# pixel adds to the distance: the darker, the more. The titles are what the images are.

most_unusual = np.argsort(model.statistic(new))[::-1][:8]
reasons = model.explain(new[most_unusual], top=64)
nearest = model.nearest_nominal(new[most_unusual], n=1)["nominal_row"]
figure, axes = plt.subplots(3, 8, figsize=(9.5, 4.4), layout="constrained")
for number, (row, column) in enumerate(zip(most_unusual, axes.T, strict=True)):
    shares = np.zeros(64)
    of_row = reasons.loc[number]
    shares[of_row["column"].astype(int)] = of_row["share"]
    shown = [new[row], nominal[nearest[number]], shares]
    for ax, image, colors in zip(
        column, shown, ["gray_r", "gray_r", "Oranges"], strict=True
    ):
        ax.imshow(image.reshape(8, 8), cmap=colors)
        ax.set(xticks=[], yticks=[])
    column[0].set_title(new_kinds[row])
    column[1].set_title(kinds[kinds != 9][nearest[number]])
for ax, name in zip(axes[:, 0], ["unusual", "its nearest", "difference"], strict=True):
    ax.set_ylabel(name, fontsize="small")
plt.show()

# %%
# K matters if nominal rows form small groups. There are about 110 images of each digit
# here, in several styles of writing. Few neighbors find more nines, and the mean of the
# distances depends less on K.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for ax, aggregation in zip(axes, ["kth", "mean"], strict=True):
    for k in (1, 3, 10, 30):
        other = lpe_dask.LPE(k, aggregation=aggregation).fit(nominal)
        p, statistic = other.score_samples(new), other.statistic(new)
        lpe_dask.plot_roc(p, is_nine, statistic=statistic, label=f"K = {k}", ax=ax)
    ax.set_title(f"aggregation={aggregation!r}")
plt.show()

# %%
# p-values of known digits are uniform, those of nines are small.

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
n_calibration = len(model.calibration_)
lpe_dask.plot_scores(p_values, is_nine, alpha=0.05, n_calibration=n_calibration, ax=ax)
plt.show()

# %%
# :doc:`/guide/choosing` shows how to choose K without labels.
