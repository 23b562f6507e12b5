#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh OUTDIR BUILD_DIR: every GPU test, logs into OUTDIR, a short summary last. Exit 0 when all
# passed, 77 without a GPU. GEMMD_TEST_ALL=1 takes every variant of the space (minutes more);
# GEMMD_BENCH_SECONDS: seconds for recording a landscape (default 60). On a Hopper GPU hopper_bench checks
# its first set of variants (hopper/cases.h), some in repeated launches; then sanitize.sh runs. fp8.py launches
# every variant of the fp8 kernels, and sanitize_fp8.sh some. On other GPUs these are skipped.
set -u
out=$1 build=$2
here=$(cd "$(dirname "$0")" && pwd)
test=$build/tests/gpu/test_gpu_grouped_gemm
bench=$build/tests/gpu/bench_gpu_portable
hopper=$build/tests/gpu/hopper_bench
mkdir -p "$out"
dump=$(mktemp -d)
trap 'rm -rf "$dump"' EXIT
summary=$out/summary.txt
: > "$summary"
failed=0

step() { # NAME LIMIT_SECONDS COMMAND...
    name=$1 limit=$2
    shift 2
    began=$(date +%s)
    timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1
    code=$?
    took=$(($(date +%s) - began))
    case $code in
    0) word=PASS ;;
    77) word=SKIP ;;
    124 | 137) word="FAIL (over $limit s)" ;;
    *) word="FAIL ($code)" ;;
    esac
    [ $code = 0 ] || [ $code = 77 ] || failed=1
    echo "$word $name ${took}s: $(tail -n 1 "$out/$name.log")" >> "$summary"
    return $code
}

step gemm 480 "$test"
if [ $? = 77 ]; then
    cat "$out/gemm.log"
    exit 77
fi
step dump 60 "$test" --dump "$dump" &&
    step reference 60 python3 "$here/check_reference.py" "$dump"
# pytest exits with 5 when all tests were skipped.
step torch 300 env GEMMD_LIBRARY="$build/client/libgemmd.so" sh -c \
    'python3 -m pytest -q -p no:cacheprovider "$1" || { code=$?; [ $code != 5 ] || exit 77; exit $code; }' sh "$here/test_torch.py"
step seams 300 env GEMMD_LIBRARY="$build/client/libgemmd.so" sh -c \
    'python3 -m pytest -q -p no:cacheprovider "$1" || { code=$?; [ $code != 5 ] || exit 77; exit $code; }' sh "$here/test_seams.py"
step batch_invariant 90 python3 "$here/batch_invariant.py" --build "$build"
step quantise 300 python3 "$here/quantise.py" --build "$build" --sizes 16384x2048 --budget 24
step fp8 300 python3 "$here/fp8.py" --build "$build" --parts space,late,soak --seconds 280
step sanitize_fp8 300 "$here/sanitize_fp8.sh" "$out" "$build"
step bench 120 "$bench" "$out/landscape.csv" --seconds "${GEMMD_BENCH_SECONDS:-60}"
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck; do
        # The sanitizer exits with 86 when it found an error.
        step "$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 86 "$test" --small
    done
else
    echo "SKIP sanitizer: compute-sanitizer is not installed" >> "$summary"
fi
step hopper 1000 "$hopper" --cubins "$dump/cubins" --stages check,soak --soak 50 \
    --jobs "$(nproc)" --seconds 400 --limit 990
step sanitize 800 "$here/sanitize.sh" "$out" "$build" "$dump/cubins"
grep -h -E '^(PASS|FAIL)' "$out/gemm.log" | head -n 40
grep -h -A 2 '^grouped_gemm' "$out/bench.log" | head -n 60
grep -h -E '^(FAIL|WRONG|UNSTEADY|DIED|HUNG)' "$out"/*.log | sort | uniq -c | sort -rn | head -n 20
echo "---- summary"
cat "$summary"
exit $failed
