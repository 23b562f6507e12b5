#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shows what limits the Hopper kernels where they miss their target times: ncu's hardware counters for
# single launches of hopper_bench. ncu leaves the clocks unlocked.
#
#   tests/gpu/counters.sh OUT BUILD CUBINS
#
# Writes OUT/counters.txt. For each row of moe.csv and tile below: the time, bytes from and to
# memory, bytes from L2 to the SMs, the use of the tensor cores, and the spread of cycles over SMs.
# Exit 77 without ncu.
set -eu
out=$1 build=$2 cubins=$3
command -v ncu >/dev/null || { echo "counters: no ncu here" >&2; exit 77; }
bench=$build/tests/gpu/hopper_bench
metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
metrics=$metrics,l1tex__m_xbar2l1tex_read_bytes.sum,sm__cycles_elapsed.max
metrics=$metrics,sm__cycles_active.avg,sm__cycles_active.min,sm__cycles_active.max
metrics=$metrics,lts__t_sectors_op_read.sum,lts__t_sectors_op_write.sum
metrics=$metrics,sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active
shapes=$(mktemp)
trap 'rm -f "$shapes"' EXIT

# row MODEL LAYER TOKENS MODE KIND TILE
row() {
    head -1 tests/data/shapes/moe.csv >"$shapes"
    grep "^$1,$2,$3,$4," tests/data/shapes/moe.csv >>"$shapes"
    echo "== $1 $2 $3 $4: $6"
    ncu --target-processes all --clock-control none -k grouped_gemm_hopper -s 2 -c 1 \
        --metrics "$metrics" "$bench" --cubins "$cubins" --stages time --shapes "$shapes" \
        --tokens "$3" --kind "$5" --tile "$6" --samples 3 --seconds 20 --limit 40 2>&1 |
        awk '$1 ~ /^(gpu__|dram__|l1tex__|lts__|sm__)/ { print $1, $2, $3 }'
}

{
    row qwen3-30b-a3b gate_up 4096 forward fwd "128x256 c2 s4 nb2"
    row qwen3-30b-a3b gate_up 4096 forward fwd "256x192 c2 s3 nb1 skip dyn"
    row qwen3-30b-a3b gate_up 4096 forward "fwd px" "128x256 c2 s4 nb2"
    row qwen3-30b-a3b gate_up 4096 dW dW "192x128 pp s4 nb1"
    row qwen3-30b-a3b gate_up 512 dW dW "128x256 c2 s4 nb2"
    row llama4-scout gate_up 4096 forward fwd "128x256 c2 s4 nb2"
    row mixtral-8x7b gate_up 4096 dX dX "256x192 c2 s3 nb1 skip dyn"
    row mixtral-8x7b gate_up 512 forward fwd "128x192 pp s4 nb1 skip"
    row mixtral-8x7b gate_up 16384 dX dX "256x192 c2 s3 nb1"
} | tee "$out/counters.txt"
