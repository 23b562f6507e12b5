#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh OUTDIR BUILD_DIR [CUBINS]: compute-sanitizer's memcheck, racecheck and synccheck over
# a seeded sample of the Hopper kernels' variants: gathered, ping-pong, scattered, fused,
# accumulating, after a permute copy, stored by threads (hopper/sample.c). One process per tool;
# logs into OUTDIR, a summary last that names the variant of each finding. Exit 0 when all are
# clean, 77 without a Hopper GPU or the sanitizer. CUBINS is a folder for compiled variants
# (default: a new folder). GEMMD_SANITIZE_SEED draws another sample; GEMMD_SANITIZE_TOOLS names the
# tools; GEMMD_SANITIZE_OPTIONS go to every tool.
#
# Limits of the tools: memcheck sees reads and writes of threads, but not of TMA. TMA stays inside
# its maps' bounds, and hopper_bench's guards and NaN check them. racecheck knows mbarriers and
# cp.async.bulk.tensor, but does not see wgmma's reads. Kernels with split sums send them by
# st.async. On these kernels racecheck did not end in 70 s (CUDA 13.0), on others in half a second, so
# this script leaves them out of racecheck.
set -u
out=$1 build=$2
bench=$build/tests/gpu/hopper_bench
seed=${GEMMD_SANITIZE_SEED:-1}
tools=${GEMMD_SANITIZE_TOOLS:-memcheck synccheck racecheck}
mkdir -p "$out"
if [ $# -gt 2 ]; then
    cubins=$3
    mkdir -p "$cubins"
else
    cubins=$(mktemp -d)
    trap 'rm -rf "$cubins"' EXIT
fi
command -v compute-sanitizer > /dev/null || {
    echo "SKIP: compute-sanitizer is not installed (it comes with the CUDA toolkit)"
    exit 77
}

# First without a sanitizer: an error of hopper_bench alone is no finding. This run also compiles all variants.
timeout -k 5 120 "$bench" --cubins "$cubins" --stages sample --sample 16 --seed "$seed" --fork no \
    > "$out/sanitize-plain.log" 2>&1
code=$?
if [ $code != 0 ]; then
    cat "$out/sanitize-plain.log"
    exit $code
fi
tail -n 2 "$out/sanitize-plain.log"

failed=0
for tool in $tools; do
    n=16 more='' splits=yes
    case $tool in
    racecheck) n=10 splits=no ;; # the slowest
    memcheck) more="--padding 256" ;;
    esac
    began=$(date +%s)
    # The sanitizer exits with 86 when it found an error.
    # shellcheck disable=SC2086 # options are words
    timeout -k 5 240 compute-sanitizer --tool "$tool" --error-exitcode 86 $more \
        ${GEMMD_SANITIZE_OPTIONS:-} \
        "$bench" --cubins "$cubins" --stages sample --sample $n --seed "$seed" --fork no \
        --splits $splits > "$out/sanitize-$tool.log" 2>&1
    code=$?
    took=$(($(date +%s) - began))
    done=$(grep -c '^SAMPLED ' "$out/sanitize-$tool.log")
    case $code in
    0) word=CLEAN ;;
    86) word=FINDINGS ;;
    124 | 137) word="FAIL (over 240 s)" ;;
    *) word="FAIL ($code)" ;;
    esac
    [ $code = 0 ] || failed=1
    echo "$word $tool: $done of $n variants, ${took}s: $(grep '^=========.*SUMMARY' \
        "$out/sanitize-$tool.log" | tail -n 1)"
    # Messages between two names belong to the first name; at most a dozen lines of each variant.
    awk -v tool="$tool" '
        /^SAMPLE / { name = substr($0, 8); said = 0 }
        /^=========/ && !/COMPUTE-SANITIZER|SUMMARY/ && said++ < 12 {
            print tool ", " name ": " substr($0, 11)
        }
        /^(WRONG|FAULT|BROKEN) / { print tool ", " $0 }' "$out/sanitize-$tool.log"
done
exit $failed
