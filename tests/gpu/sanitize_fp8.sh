#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize_fp8.sh OUTDIR BUILD_DIR: compute-sanitizer's memcheck and racecheck over the fp8 kernels for Hopper and
# the quantisers, a few launches of each kind (fp8.py --parts small), in less than two minutes. Logs into OUTDIR, a
# line for each run. Exit 0 when all are clean, 77 without a Hopper GPU or the sanitizer.
#
# Only gemmd's kernels are looked at, and PyTorch gives each tensor memory of its own. Kernels in clusters are left
# out of racecheck, as in sanitize.sh, which has the limits of the tools.
set -u
out=$1 build=$2
small="$(dirname "$0")/fp8.py --build $build --parts small"
mkdir -p "$out"
command -v compute-sanitizer > /dev/null || {
    echo "SKIP: compute-sanitizer is not installed (it comes with the CUDA toolkit)"
    exit 77
}
export PYTORCH_NO_CUDA_MEMORY_CACHING=1

# First without a sanitizer: this compiles the kernels, and an error of a kernel alone is no finding.
# shellcheck disable=SC2086 # a command with options
timeout -k 5 100 python3 $small > "$out/sanitize-fp8-plain.log" 2>&1
code=$?
[ $code = 0 ] || {
    cat "$out/sanitize-fp8-plain.log"
    exit $code
}

failed=0
for tool in memcheck racecheck; do
    for kernels in grouped_gemm quantise; do
        log=$out/sanitize-fp8-$tool-$kernels.log more='--padding 256'
        [ $tool = memcheck ] || more=''
        clusters=
        [ $tool = memcheck ] || clusters=--no-clusters
        began=$(date +%s)
        # The sanitizer exits with 86 when it found an error.
        # shellcheck disable=SC2086 # options are words
        timeout -k 5 60 compute-sanitizer --tool $tool --error-exitcode 86 --target-processes all \
            --kernel-name kns=$kernels $more python3 $small --jobs 0 --only "$kernels mode" $clusters > "$log" 2>&1
        code=$?
        case $code in
        0) word=CLEAN ;;
        86) word=FINDINGS ;;
        124 | 137) word="FAIL (over 60 s)" ;;
        *) word="FAIL ($code)" ;;
        esac
        [ $code = 0 ] || failed=1
        echo "$word $tool $kernels $(($(date +%s) - began))s: $(grep '^small:' "$log" | tail -n 1) $(grep 'SUMMARY' \
            "$log" | sort | uniq -c | tr '\n' ' ')"
        [ $code = 0 ] || grep '^=========' "$log" | head -n 20
    done
done
exit $failed
