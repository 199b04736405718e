#!/bin/sh
# numba reads compiled kernels only in a folder that it could also write: give it a copy.
set -e
mkdir -p "$NUMBA_CACHE_DIR"
cp -r /opt/lpe/kernels/. "$NUMBA_CACHE_DIR"
exec "$@"
