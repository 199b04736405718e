#!/bin/bash
# Fit, and then score: two SLURM jobs, the second of which waits until the first is done.
#
#     bash chain.sh FIT.toml SCORE.toml [--date 2026-11-20] [OPTIONS of lpe-dask run]
#
# Both are for the day on which this is started, also where the second one begins after
# midnight; of two --date the last one counts.
#
# afterok waits while the fit is requeued, and for its exit code 0. If it ends with another
# one, SLURM removes the second job.
set -eu
if [ $# -lt 2 ]; then
    echo "usage: bash chain.sh FIT.toml SCORE.toml [--date DAY] [OPTIONS of lpe-dask run]" >&2
    exit 2
fi
script=$(dirname "$0")/run.sbatch
fit=$1 score=$2
shift 2
set -- --date "$(date +%F)" "$@"

first=$(sbatch --parsable "$script" "$fit" "$@")
second=$(sbatch --parsable --dependency="afterok:${first%%;*}" --kill-on-invalid-dep=yes \
    "$script" "$score" "$@")
echo "fit: job ${first%%;*}, score: job ${second%%;*}"
