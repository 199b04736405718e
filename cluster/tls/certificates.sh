#!/bin/bash
# Make an authority of this cluster's own, and a certificate for scheduler, workers and clients.
#
#   bash certificates.sh FOLDER
set -euo pipefail
umask 077  # keys are for their owner
mkdir -p "$1"
cd "$1"

key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365)
openssl req -x509 "${key[@]}" -subj "/CN=authority of the cluster" -keyout ca.key -out ca.pem

# Scheduler and workers also answer. What has a client's certificate cannot pose as one of them.
for role in scheduler:serverAuth,clientAuth worker:serverAuth,clientAuth client:clientAuth; do
    name=${role%%:*}
    openssl req -x509 "${key[@]}" -CA ca.pem -CAkey ca.key -subj "/CN=$name" \
        -addext basicConstraints=critical,CA:FALSE -addext "extendedKeyUsage=${role#*:}" \
        -keyout "$name.key" -out "$name.pem"
done
