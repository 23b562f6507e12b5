#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh SECONDS OUT [TARGET...]: runs each fuzz target for SECONDS; JOBS=n runs n targets at once.
# A run starts from the committed corpus and the corpus that earlier runs left in OUT. Needs clang.
#   OUT/<target>.log         libFuzzer's output.
#   OUT/<target>/            the corpus of this and earlier runs.
#   OUT/<target>-found/      inputs that failed; run.sh exits 1 unless every such folder is empty.
#   OUT/summary.tsv          target, seconds, executions, executions per second, corpus, findings;
#                            lines, covered lines and per cent of the target's sources.
# clang measures coverage: a build without sanitizers replays the committed and OUT's corpus.
# MERGE=1 writes OUT/<target>-new/: the committed corpus and the inputs that add coverage.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:?"usage: run.sh SECONDS OUT [TARGET...]"}
mkdir -p "${2:?"usage: run.sh SECONDS OUT [TARGET...]"}"
out=$(cd "$2" && pwd)
shift 2
[ $# -gt 0 ] || set -- answer frame message text import landscape record settings
fuzz=${BUILD_FUZZ:-$root/build-fuzz}
cover=${BUILD_COVER:-$root/build-fuzz-coverage}

# The sources that each target covers on purpose.
sources() {
    case $1 in
    answer) echo proto/pull.c proto/span.c client/answer.c ;;
    frame) echo proto/scan.c proto/rpc.c ;;
    message) echo proto/scan.c proto/rpc.c proto/wire_read.c proto/request.c proto/restrict.c \
        proto/order.c proto/schema.c proto/record.c proto/record_wire.c proto/problem.c \
        proto/bucket.c proto/key.c ;;
    text) echo proto/text.c proto/record_text.c proto/record.c proto/problem.c proto/wire_json.c ;;
    import) echo client/ctl/aiter_read.c client/ctl/unsloth_read.c client/ctl/tile.c \
        client/ctl/custom_read.c client/ctl/fused_moe_read.c client/ctl/t4_read.c \
        client/ctl/wisdom_read.c client/ctl/tunable.c proto/schema.c ;;
    landscape) echo kernels/devices/replay/file.c kernels/devices/replay/table.c \
        kernels/devices/replay/faults.c kernels/devices/replay/noise.c ;;
    record) echo kernels/modules_record.c ;;
    settings) echo daemon/base/config.c ;;
    esac
}

prepare() {
    targets=""
    for t in "$@"; do
        targets="$targets tests/fuzz/fuzz_$t"
    done
    [ -f "$fuzz/build.ninja" ] || CC=${CLANG:-clang} meson setup "$fuzz" "$root" -Dfuzz=true \
        --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false >"$out/setup.log"
    [ -f "$cover/build.ninja" ] || CC=${CLANG:-clang} meson setup "$cover" "$root" \
        --buildtype=debugoptimized -Dc_args='-fprofile-instr-generate -fcoverage-mapping' \
        -Dc_link_args=-fprofile-instr-generate >>"$out/setup.log"
    # shellcheck disable=SC2086 # a list of words
    ninja -C "$fuzz" --quiet $targets
    # shellcheck disable=SC2086
    LLVM_PROFILE_FILE=/dev/null ninja -C "$cover" --quiet $targets # the build runs its programs
}

search() {
    mkdir -p "$out/$1" "$out/$1-found"
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$fuzz/tests/fuzz/fuzz_$1" \
        -max_total_time="$seconds" -max_len="${MAX_LEN:-4096}" -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -close_fd_mask=3 -artifact_prefix="$out/$1-found/" \
        "$out/$1" "$root/tests/fuzz/corpus/$1" >"$out/$1.log" 2>&1 || true
}

covered() {
    LLVM_PROFILE_FILE="$out/$1.profraw" "$cover/tests/fuzz/fuzz_$1" "$out/$1" \
        "$root/tests/fuzz/corpus/$1" >/dev/null 2>&1 || true
    "${LLVM_PROFDATA:-llvm-profdata}" merge -sparse "$out/$1.profraw" -o "$out/$1.profdata"
    "${LLVM_COV:-llvm-cov}" report "$cover/tests/fuzz/fuzz_$1" \
        -instr-profile="$out/$1.profdata" >"$out/$1.coverage" 2>/dev/null || true
    awk -v wanted="$(sources "$1")" '
        BEGIN { n = split(wanted, w, " "); for (i = 1; i <= n; i++) about[w[i]] = 1 }
        $1 in about { lines += $8; missed += $9 }
        END { printf "%d\t%d\t%.1f", lines, lines - missed, lines ? 100 * (lines - missed) / lines : 0 }
        ' "$out/$1.coverage"
}

stat() { # stat TARGET NAME: reads libFuzzer's final statistics
    sed -n "s/^stat::$2: *//p" "$out/$1.log" | tail -1
}

prepare "$@"
running=0
for t in "$@"; do
    search "$t" &
    running=$((running + 1))
    if [ "$running" -ge "${JOBS:-1}" ]; then
        wait
        running=0
    fi
done
wait
printf 'target\tseconds\texecutions\tper_second\tcorpus\tfindings\tlines\tcovered\tper_cent\n' \
    >"$out/summary.tsv"
for t in "$@"; do
    n=$(stat "$t" number_of_executed_units)
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$t" "$seconds" "${n:-0}" "$(stat "$t" average_exec_per_sec)" \
        "$(find "$out/$t" -type f | wc -l)" "$(find "$out/$t-found" -type f | wc -l)" "$(covered "$t")" \
        >>"$out/summary.tsv"
    if [ "${MERGE:-0}" = 1 ]; then
        rm -rf "$out/$t-new"
        mkdir "$out/$t-new"
        cp "$root/tests/fuzz/corpus/$t"/* "$out/$t-new/"
        "$fuzz/tests/fuzz/fuzz_$t" -merge=1 -close_fd_mask=3 "$out/$t-new" "$out/$t" 2>/dev/null
    fi
done
cat "$out/summary.tsv"
[ -z "$(find "$out" -path '*-found/*' -type f)" ]
