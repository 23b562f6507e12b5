# SPDX-License-Identifier: Apache-2.0
# bash completion of gemmctl

_gemmctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local commands="get tune bench pin unpin promote list show why trials verify modules quarantine evict cancel space precompile
        landscape check export import bundle lock backup restore report events jobs models status metrics devices start stop version fleet help"
    local common="--socket --device --json --quiet --help"
    local problem="--mode --m --n --k --tokens --experts --topk --permute-x --permute-y
        --fuse-mul-post --accumulate --batch-invariant --dtype --out-dtype --quant --routing --rows-per-expert --op --shapes --moe --model --layer
        --permutes"
    local measuring="--budget-ms --wall-ms --iters --warmup --seed"
    local search="$measuring --budget --strategy --again"
    local waiting="--wait --deadline-ms"
    local space="--restrict --space"
    local given="--config --configs --target"
    local exact="--atol --rtol"
    local rows="--where --sort --top --offset"
    local view="--wide --columns"
    local options=$common

    case $prev in
    --mode) COMPREPLY=($(compgen -W "forward dX dW" -- "$cur")); return ;;
    --dtype|--out-dtype) COMPREPLY=($(compgen -W "bf16 fp16 fp32" -- "$cur")); return ;;
    --quant) COMPREPLY=($(compgen -W "none fp8_block fp8_row" -- "$cur")); return ;;
    --wait)
        local ways="tuned now"
        [ "${COMP_WORDS[1]}" = get ] && ways+=" cached"
        COMPREPLY=($(compgen -W "$ways" -- "$cur"))
        return ;;
    --strategy) COMPREPLY=($(compgen -W "ranked exhaustive random genetic given" -- "$cur")); return ;;
    --bucket) COMPREPLY=($(compgen -W "sqrt2 pow2 exact" -- "$cur")); return ;;
    --op) COMPREPLY=($(compgen -W "grouped_gemm gemm gemm_a8w8_blockscale quantise custom:" -- "$cur")); return ;;
    --routing) COMPREPLY=($(compgen -W "uniform zipf: rows:" -- "$cur")); return ;;
    --moe) COMPREPLY=($(compgen -W "experts=" -- "$cur")); return ;;
    --layer) COMPREPLY=($(compgen -W "gate_up down" -- "$cur")); return ;;
    --permutes) COMPREPLY=($(compgen -W "own none" -- "$cur")); return ;;
    --target) COMPREPLY=($(compgen -W "hopper portable cpu" -- "$cur")); return ;;
    --arch) COMPREPLY=($(compgen -W "sm_80 sm_86 sm_87 sm_89 sm_90a sm_100 sm_120 cpu" -- "$cur")); return ;;
    --format)
        local formats="gemmd unsloth aiter"
        [ "${COMP_WORDS[1]}" = export ] && formats+=" portfolio"
        COMPREPLY=($(compgen -W "$formats" -- "$cur"))
        return ;;
    --compat) COMPREPLY=($(compgen -W "unsloth" -- "$cur")); return ;;
    --device) COMPREPLY=($(compgen -W "cpu cuda:0" -- "$cur")); return ;;
    --what)
        COMPREPLY=($(compgen -W "best stale history trials modules quarantine runs devices events jobs served portfolio fleet fleet_rows" -- "$cur"))
        return ;;
    --socket|--shapes|--rows-per-expert|--space|--configs|--output|--to|--database|--html|--key|--public-key) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    if [ "$COMP_CWORD" -eq 1 ] || [ "${COMP_WORDS[1]}" = help ]; then
        COMPREPLY=($(compgen -W "$commands" -- "$cur"))
        return
    fi
    case ${COMP_WORDS[1]} in
    get) options="$problem $search $waiting $space $given $exact $view --generation $common" ;;
    tune) options="$problem --known --stale $search $waiting $space $given $exact $view $common" ;;
    bench) options="$problem $measuring --deadline-ms $given $exact $view $common" ;;
    pin) options="$problem $given $exact $common" ;;
    check) options="$problem $given $common" ;;
    unpin|promote|cancel) options="$problem $common" ;;
    show) options="$problem $view $common" ;;
    evict) options="$problem $rows $view --older-than --yes $common" ;;
    verify) options="--exact --bucket --samples $problem $search $exact --target --generation $common" ;;
    why) options="$problem $exact --target --job --all $common" ;;
    space) options="$problem $space --arch --compat --target $common" ;;
    precompile|warm) options="$problem --arch --target --jobs --seconds --all --cache-dir --cache-max-mib --json --quiet --help" ;;
    lock) options="$problem --to $common" ;;
    landscape) options="$problem --to --device --target --seconds --variants --settings --finals --note --jobs --cache-dir
        --json --quiet --help" ;;
    trials) options="$problem $rows $view --failed --all $common" ;;
    list) options="--what --all $rows $view $common" ;;
    jobs) options="--all $rows $view $common" ;;
    events) options="--all --follow $rows $view $common" ;;
    status) options="--all --watch $common" ;;
    models) options="--json --quiet --help" ;;
    quarantine) options="--clear $rows $view $common" ;;
    modules|devices) options="$rows $view $common" ;;
    report) options="--html --from --to $problem $common" ;;
    metrics) options="--textfile $common" ;;
    fleet)
        options="--note $common"
        case $cur in
        -*) ;;
        *) options="status sql pin withdraw distrust trust prune renew_epoch" ;;
        esac ;;
    export) options="--format --fields --to --output $problem $rows $common" ;;
    bundle)
        options="--key --modules --note --public-key --trust --force $rows $common"
        case $COMP_CWORD:$cur in
        *:-*) ;;
        2:*) options="create verify install" ;;
        *) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        esac ;;
    import|backup|restore)
        [ "${COMP_WORDS[1]}" = restore ] && options="--database --json --quiet --help"
        [ "${COMP_WORDS[1]}" = import ] && options="--format --problem --fields --dry-run --trust $problem $common"
        case $cur in
        -*) ;;
        *) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
}

complete -F _gemmctl gemmctl
