"""The folder, the data and the table of `lpe-dask demo`: real handwritten digits."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

#: Levels at which the demo counts what is flagged.
DEMO_ALPHAS = (0.01, 0.05, 0.1)

#: The demo takes the digits up to this one as nominal.
LAST_NOMINAL_DIGIT = 4


def demo_folder(output: str | None, stack: ExitStack) -> Path:
    """Return a new folder, which is removed with the stack if it was not asked for."""
    if output is None:
        temporary = tempfile.TemporaryDirectory(prefix="lpe-dask-demo-")
        return Path(stack.enter_context(temporary))
    folder = Path(output)
    if folder.exists():
        raise FileExistsError(f"the output {output} exists. Give a folder that does not.")
    folder.mkdir(parents=True)
    stack.push(lambda kind, *rest: None if kind is None else shutil.rmtree(folder))
    return folder


def write_digits(folder: Path) -> None:
    """Write the nominal rows, and the rows to score with the digit that each one shows."""
    from sklearn.datasets import load_digits

    digits = load_digits(as_frame=True)
    pixels, digit = digits.data, digits.target.rename("digit")
    is_nominal = (digit <= LAST_NOMINAL_DIGIT) & (digit.index % 3 != 0)
    pixels[is_nominal].to_parquet(folder / "nominal.parquet")
    pixels.assign(digit=digit)[~is_nominal].to_parquet(folder / "digits.parquet")


def demo_table(scores: Path) -> str:
    """Return what was found in the output folder, as a table to print."""
    import pandas as pd
    from sklearn.metrics import roc_auc_score

    table = pd.read_parquet(scores)
    is_new = table["digit"] > LAST_NOMINAL_DIGIT
    area = roc_auc_score(is_new, table["statistic"])
    lines = [
        f"Area under the ROC curve, 5-9 against 0-4: {area:.3f}",
        "",
        f"flagged at alpha{'':<11}" + "   ".join(f"{alpha:6g}" for alpha in DEMO_ALPHAS),
    ]
    for name, rows in [
        ("0-4, by mistake", table[~is_new]),
        ("5-9, rightly", table[is_new]),
    ]:
        shares = [f"{(rows['p_value'] <= alpha).mean():6.1%}" for alpha in DEMO_ALPHAS]
        lines.append(f"{len(rows):4d} digits {name:<15}" + "   ".join(shares))
    return "\n".join(lines)


def demo_ending(folder: Path, *, is_kept: bool) -> str:
    """Return the commands to continue with."""
    if not is_kept:
        return "\nTo keep the tables and try it by hand: lpe-dask demo --output FOLDER"
    tables = f"{folder / 'digits.parquet'} --nominal {folder / 'nominal.parquet'}"
    return (
        f"\nThe p-values are in {folder / 'scores'}. The same by hand:\n"
        f"lpe-dask score {tables} --keep digit --output {folder / 'again'}"
    )
