"""A process that finds all that it needs compiled."""

from compiling import said_by

AFTER_COMPILATION = """
import numpy as np
from numba.core import event
compiled = event.RecordingListener()
event.register("numba:compile", compiled)
from lpe_dask import LPE
from lpe_dask.kernels import compilation

compilation._work.done = 1e300
rng = np.random.default_rng(0)
rows, queries = rng.standard_normal((3000, 3)), rng.standard_normal((20, 3))
for kind in (
    {"algorithm": "pruned"}, {"n_neighbors": 60}, {"metric": "mahalanobis"},
    {"graph": "radius", "radius": 0.5}, {"metric": "geodesic"},
    {"metric": "geodesic", "metric_params": {"graph": "union", "n_neighbors": 5}},
):
    model = LPE(**kind).fit(rows)
    model.score_samples(queries)
    if "graph" not in kind:
        model.explain(queries[:2])
print(len(compilation._work.ready), len(compiled.buffer))
"""


def test_compile_kernels__leaves_nothing_to_compile(tmp_path):
    program = "import lpe_dask; lpe_dask.compile_kernels()"
    _, lines = said_by(program, tmp_path)
    found, lines_later = said_by(AFTER_COMPILATION, tmp_path)

    n_kernels = sum(line.startswith("compiling ") for line in lines)
    assert found == [str(n_kernels), "0"]
    assert [line for line in lines_later if "compiling" in line] == []
