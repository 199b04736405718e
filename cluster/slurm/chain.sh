#!/bin/bash
# Fit, and then score: two SLURM jobs, the second of which waits until the first is done.
#
#     bash chain.sh fit.toml score.toml [--date 2026-11-20]
#
# afterok waits while the fit is requeued, and for its exit code 0. If it ends with another
# one, SLURM removes the second job.
set -eu
script=$(dirname "$0")/run.sbatch
fit=$1 score=$2
shift 2

first=$(sbatch --parsable "$script" "$fit" "$@")
second=$(sbatch --parsable --dependency="afterok:${first%%;*}" --kill-on-invalid-dep=yes \
    "$script" "$score" "$@")
echo "fit: job ${first%%;*}, score: job ${second%%;*}"
