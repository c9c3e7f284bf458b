#!/usr/bin/env bash
# What one GPU says of plainres, in under 6 minutes: the gpu tests, the benchmark on the device, and a depth sweep on
# images of CIFAR's size in every mode of the trainer. One table last; JSON in results/gpu_check.json (or the first
# argument). Without a GPU it runs to its end on the CPU, and says what it left out.
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv/bin/python scripts/gpu_check.py "$@"
