# SPDX-License-Identifier: Apache-2.0
# fish completion of gemmctl

set -l commands get tune bench pin unpin promote list show why trials verify modules quarantine evict cancel space precompile landscape check \
    export import backup restore report events models status metrics devices start stop version help
set -l asking get tune bench verify
set -l problems get tune bench verify pin unpin promote evict cancel show why space precompile landscape check trials report
set -l listing list trials modules devices quarantine events evict

complete -c gemmctl -f
complete -c gemmctl -n "not __fish_seen_subcommand_from $commands" -a "$commands"
complete -c gemmctl -n "__fish_seen_subcommand_from help" -a "$commands"
complete -c gemmctl -n "__fish_seen_subcommand_from import backup restore" -F

complete -c gemmctl -n "__fish_seen_subcommand_from metrics" -l textfile -r -F -d "for node_exporter"

set -l d "not __fish_seen_subcommand_from precompile warm models"
complete -c gemmctl -n $d -l socket -r -F -d "socket of the daemon"
complete -c gemmctl -n $d -l device -x -a "cpu cuda:0" -d "whose daemon"
complete -c gemmctl -n "__fish_seen_subcommand_from get verify" -l generation -x -a "now" -d "answers as of this generation"
complete -c gemmctl -l json -d "one JSON document instead of tables"
complete -c gemmctl -s q -l quiet -d "no progress, no remarks"
complete -c gemmctl -l help -d "options of the command"

set -l p "__fish_seen_subcommand_from $problems export import"
complete -c gemmctl -n $p -l mode -x -a "forward dX dW" -d "modes"
complete -c gemmctl -n $p -l m -x -d "routed rows"
complete -c gemmctl -n $p -l n -x -d "rows of W"
complete -c gemmctl -n $p -l k -x -d "columns of W"
complete -c gemmctl -n $p -l tokens -x -d "M is tokens times topk"
complete -c gemmctl -n $p -l experts -x -d "experts"
complete -c gemmctl -n $p -l topk -x -d "experts per token"
complete -c gemmctl -n $p -l permute-x -d "X is in token order"
complete -c gemmctl -n $p -l permute-y -d "Y is in token order"
complete -c gemmctl -n $p -l fuse-mul-post -d "multiply by the routing weights"
complete -c gemmctl -n $p -l accumulate -d "dW is added"
complete -c gemmctl -n $p -l dtype -x -a "bf16 fp16 fp32" -d "type of the operands"
complete -c gemmctl -n $p -l out-dtype -x -a "bf16 fp16 fp32" -d "type of the output"
complete -c gemmctl -n $p -l routing -x -a "uniform zipf: rows:" -d "routing profile"
complete -c gemmctl -n $p -l rows-per-expert -r -F -d "rows of each expert"
complete -c gemmctl -n $p -l op -x -a "grouped_gemm gemm custom:" -d "op"
complete -c gemmctl -n $p -l shapes -r -F -d "table of layers"
complete -c gemmctl -n $p -l moe -x -d "all products of a layer"
complete -c gemmctl -n $p -l model -x -d "of --shapes"
complete -c gemmctl -n $p -l layer -x -a "gate_up down" -d "of --shapes"
complete -c gemmctl -n $p -l permutes -x -a "own none" -d "of --shapes"

set -l a "__fish_seen_subcommand_from $asking"
complete -c gemmctl -n $a -l budget -x -d "configs at most"
complete -c gemmctl -n $a -l budget-ms -x -d "device time at most"
complete -c gemmctl -n $a -l wall-ms -x -d "wall time at most"
complete -c gemmctl -n $a -l strategy -x -a "ranked exhaustive random genetic given" -d "strategy"
complete -c gemmctl -n $a -l iters -x -d "timed launches"
complete -c gemmctl -n $a -l warmup -x -d "untimed launches"
complete -c gemmctl -n $a -l seed -x -d "seed"
complete -c gemmctl -n $a -l wait -x -a "tuned now cached" -d "how to wait"
complete -c gemmctl -n $a -l deadline-ms -x -d "answer by then"
complete -c gemmctl -n $a -l again -d "tune even when known"
set -l s "__fish_seen_subcommand_from get tune space"
complete -c gemmctl -n $s -l restrict -x -d "only these values"
complete -c gemmctl -n $s -l space -r -F -d "the same as JSON"
set -l g "__fish_seen_subcommand_from get tune bench pin check"
complete -c gemmctl -n $g -l config -x -d "just this config"
complete -c gemmctl -n $g -l configs -r -F -d "just these configs"
set -l e "__fish_seen_subcommand_from $asking pin why"
complete -c gemmctl -n $e -l atol -x -d "absolute tolerance"
complete -c gemmctl -n $e -l rtol -x -d "relative tolerance"

set -l w "__fish_seen_subcommand_from precompile warm"
complete -c gemmctl -n $w -l arch -x -a "sm_80 sm_86 sm_87 sm_89 sm_90a sm_100 sm_120 cpu" \
    -d "for an architecture"
complete -c gemmctl -n $w -l jobs -x -d "compile so many at once"
complete -c gemmctl -n $w -l seconds -x -d "begin nothing after so long"
complete -c gemmctl -n $w -l all -d "all types and fusions"
complete -c gemmctl -n $w -l cache-dir -r -d "the daemon's"
complete -c gemmctl -n $w -l cache-max-mib -x -d "stop when it holds so much"

set -l o "__fish_seen_subcommand_from landscape"
complete -c gemmctl -n $o -l to -r -F -d "the landscape"
complete -c gemmctl -n $o -l seconds -x -d "begin no more kernels after so long"
complete -c gemmctl -n $o -l variants -x -d "so many kernels at least"
complete -c gemmctl -n $o -l settings -x -d "run-time settings of each"
complete -c gemmctl -n $o -l finals -x -d "measured again in turn"
complete -c gemmctl -n $o -l note -x -d "into the file"
complete -c gemmctl -n $o -l jobs -x -d "compile so many at once"
complete -c gemmctl -n $o -l cache-dir -r -d "the daemon's"

set -l t "__fish_seen_subcommand_from $asking pin check space precompile landscape why"
complete -c gemmctl -n $t -l target -x -a "hopper portable cpu" -d "only these kernels"
complete -c gemmctl -n "__fish_seen_subcommand_from space" -l compat -x -a "unsloth" \
    -d "the space of another tuner"
complete -c gemmctl -n "__fish_seen_subcommand_from space" -l arch -x \
    -a "sm_80 sm_86 sm_87 sm_89 sm_90a sm_100 sm_120 cpu" -d "of an architecture"

set -l r "__fish_seen_subcommand_from $listing export"
complete -c gemmctl -n $r -l where -x -d "only these rows"
complete -c gemmctl -n $r -l sort -x -d "column"
complete -c gemmctl -n $r -l top -x -d "first rows"
complete -c gemmctl -n $r -l offset -x -d "without the first rows"
set -l v "__fish_seen_subcommand_from $listing get tune bench show"
complete -c gemmctl -n $v -l wide -d "all columns, whole values"
complete -c gemmctl -n $v -l columns -x -d "these columns"
complete -c gemmctl -n "__fish_seen_subcommand_from list" -l what -x \
    -a "best stale history trials modules quarantine runs devices events portfolio" -d "list"
complete -c gemmctl -n "__fish_seen_subcommand_from status list trials events" -l all -d "every daemon"
complete -c gemmctl -n "__fish_seen_subcommand_from status" -l watch -d "again and again"
complete -c gemmctl -n "__fish_seen_subcommand_from events" -l follow -d "new events as they come"
complete -c gemmctl -n "__fish_seen_subcommand_from tune" -l known -d "all known keys again"
complete -c gemmctl -n "__fish_seen_subcommand_from tune" -l stale -d "only rows of other kernels"
complete -c gemmctl -n "__fish_seen_subcommand_from evict" -l older-than -x -d "only older rows"
complete -c gemmctl -n "__fish_seen_subcommand_from evict" -l yes -d "do not ask"
complete -c gemmctl -n "__fish_seen_subcommand_from trials" -l failed -d "only failures"
complete -c gemmctl -n "__fish_seen_subcommand_from quarantine" -l clear -x -d "let it run again"
complete -c gemmctl -n "__fish_seen_subcommand_from export" -l to -l output -r -F -d "not stdout"
complete -c gemmctl -n "__fish_seen_subcommand_from export" -l format -x \
    -a "gemmd unsloth aiter vllm sglang t4 wisdom tunableop portfolio" -d "whose format"
complete -c gemmctl -n "__fish_seen_subcommand_from import" -l format -x \
    -a "gemmd unsloth aiter vllm sglang t4 wisdom" -d "whose format"
complete -c gemmctl -n "__fish_seen_subcommand_from export import" -l fields -x -d "where problems have the fields"
complete -c gemmctl -n "__fish_seen_subcommand_from import" -l problem -x -d "of the custom op"
complete -c gemmctl -n "__fish_seen_subcommand_from verify" -l exact -d "what rounding costs"
complete -c gemmctl -n "__fish_seen_subcommand_from verify" -l bucket -x -a "sqrt2 pow2 exact" -d "schemes"
complete -c gemmctl -n "__fish_seen_subcommand_from verify" -l samples -x -d "shapes inside a bucket"
complete -c gemmctl -n "__fish_seen_subcommand_from report" -l html -r -F -d "the page"
complete -c gemmctl -n "__fish_seen_subcommand_from report" -l from -x -d "changes behind this generation"
complete -c gemmctl -n "__fish_seen_subcommand_from report" -l to -x -d "changes up to this generation"
complete -c gemmctl -n "__fish_seen_subcommand_from import" -l dry-run -d "only show the hints"
complete -c gemmctl -n "__fish_seen_subcommand_from import" -l trust -d "the rows answer at once"
complete -c gemmctl -n "__fish_seen_subcommand_from restore" -l database -r -F -d "the database"
