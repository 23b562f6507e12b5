#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds hopper_bench and libgemmd without one lever of the Hopper kernels, to see the lever's cost.

    ablate.py NAME DIR [MESON_OPTION...]   the committed tree with the edit, in DIR/source; built in DIR/build
    ablate.py --check                      every edit still applies; at once, in CI

Then, on a GPU, for the figures of dW in docs/kernel-notes.md:

    DIR/build/tests/gpu/hopper_bench --cubins EMPTY_DIR --stages time --kind dW --tile "128x128 c1 s5 nb4 x2" \\
        --samples 7 --gap-ms 2 --shape "2048 5760 2880 32 4"

and of fp8's dW (fp8_*):

    tests/gpu/fp8_cycles.py --build DIR/build --shape dW,8192,4096,4096

The times are what counts. Results stay right only with evict_last, store_ends, rest_waits, apart,
first_more, asks_nothing, row_by_row, first_rows_first, and with by_sm if each SM has one thread block.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KERNELS = "kernels/families/grouped_gemm/hopper/"
LOADS = """        load_a(p, t, x, d, part, goal_stage(stage, bar), policy);
    if (!GATHER_B)
"""
POLICY = """INLINE u64 policy_evict_last(void)
{
    u64 r;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(r));
    return r;
}

"""
LOAD_5D = """5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(bar)
"""
LOAD_5D_LAST = """5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(bar), "l"(policy_evict_last())
"""
ROW_AND_COLUMN = ": COLUMN_SCALES ? row[i >> 1 & 1] * column :"
# {name of an edit: [(file of the Hopper kernels, lines of the file, the lines that replace them)]}
EDITS = {
    "no_loads": [  # barriers complete, but TMA loads no data
        ("producer.cu", "barrier_expect(bar, part > WHOLE_PART ? last_bytes(p, x, part) : x->bytes);\n    if (!GATHER_A)\n"
         + LOADS, "barrier_expect(bar, 0);\n    if (d < 0)\n" + LOADS.replace("!GATHER_B", "d < 0"))],
    "no_wgmma": [  # everything runs except the multiplication
        ("wgmma.cu", "    (void)acc;\n#define OF(n)", "    (void)acc;\n    if (scale != 77) /* it is 0 or 1 */\n        return;\n#define OF(n)")],
    "no_stores": [  # everything runs except dW's store
        ("epilogue.cu", "    if (MODE == MODE_DW)\n        send_sums(p, t, buffer, c, r);\n    else\n",
         "    if (MODE == MODE_DW && r < 0)\n        send_sums(p, t, buffer, c, r);\n    if (MODE != MODE_DW)\n")],
    "one_place": [  # dW loads the same rows of x and dy for every expert, so that these rows stay in L2
        ("producer.cu", "z = t->first + t->rows, slab =", "z = t->rows, slab =")],
    "evict_last": [  # loads and prefetches carry a policy that keeps dW's operands in L2
        ("ptx.cu", "INLINE u64 policy_evict_first(void)\n", POLICY + "INLINE u64 policy_evict_first(void)\n"),
        ("ptx.cu", LOAD_5D, LOAD_5D_LAST),
        ("ptx.cu", 'prefetch.L2.global [%0], %1;" :: "l"(from), "r"(bytes) :',
         'prefetch.L2.global.L2::cache_hint [%0], %1, %2;"\n'
         '                 :: "l"(from), "r"(bytes), "l"(policy_evict_last()) :')],
    "no_gather_fence": [  # no fence between gathering operands and multiplying them
        ("mainloop.cu", "    if (GATHER)\n        async_fence();\n", "")],
    "no_gathering": [  # threads signal that they have copied rows, but copy nothing
        ("ptx.cu", '    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"',
         '    if (to == 1)\n        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"'),
        ("ptx.cu", '    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"',
         '    if (to == 1)\n        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"')],
    "store_ends": [  # a staging buffer is reused after its store has written, not after it has only read the buffer
        ("ptx.cu", "cp.async.bulk.wait_group.read %0;", "cp.async.bulk.wait_group %0;")],
    "rest_waits": [  # without REST_LATE: dW's single consumer waits for a block of K before it seeks its next tile
        ("mainloop.cu", "#define REST_LATE (", "#define REST_LATE (0 && ")],
    "apart": [  # no barrier tells the compiler that a warp's lanes are together when they multiply
        ("mainloop.cu", "    if (SAY_TOGETHER)\n", "    if (0)\n"),
        ("scheduler.cu", "CALLED void order_experts(", "INLINE void order_experts(")],
    "first_more": [  # swap_ab: also an odd expert's wider tiles are its first, not its last
        ("scheduler.cu", "t->expert & 1 ? tiles - more : 0", "0")],
    "by_sm": [  # tiles are dealt by an SM's number; the hardware gives adjacent thread blocks to the SMs of a GPC
        ("scheduler.cu", "#define WALKER BLOCK\n",
         'INLINE int sm_id(void)\n{\n    int r;\n    asm volatile("mov.u32 %0, %%smid;" : "=r"(r));\n    return r;\n}\n'
         "#define WALKER sm_id()\n")],
    "asks_nothing": [  # in kernels for one expert, consumers do not prefetch operands into L2
        ("one_expert.cu", "#define ASKS_FIRST (LOCATE_EARLY &&", "#define ASKS_FIRST (0 && LOCATE_EARLY &&")],
    "row_by_row": [  # permute_copy reads a token's row for each of its topk copies, not once
        ("host/launch.c", "return v->gather_x && v->topk > 1 &&", "return v->gather_x && v->topk > 1 << 30 &&")],
    "first_rows_first": [  # permute_copy copies rows from the first to the last
        ("permute.cu", "int i = p.rows - 1 - PERMUTE_WARP; i >= 0; i -= PERMUTE_WARPS",
         "int i = PERMUTE_WARP; i < p.rows; i += PERMUTE_WARPS")],
    "fp8_no_product": [  # dW: a sum is multiplied by the scale of its column alone
        ("fp8.cu", ROW_AND_COLUMN, ": COLUMN_SCALES ? column :")],
    "fp8_no_columns": [  # dW: a sum is multiplied by the scale of its row alone, and no other is loaded
        ("fp8.cu", ROW_AND_COLUMN, ": COLUMN_SCALES ? row[i >> 1 & 1] :")],
}


def texts(name, tree):
    """{path: text with the edit}. ValueError: the edit does not apply."""
    out = {}
    for file, old, new in EDITS[name]:
        path = tree / KERNELS / file
        text = out.get(path) or path.read_text(encoding="ascii")
        if text.count(old) != 1:
            raise ValueError(f"{name}: {file} has these lines {text.count(old)} times, not once; change the "
                             f"edit as the kernel has changed:\n{old}")
        out[path] = text.replace(old, new)
    return out


def build(name, folder, options):
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    for path, text in texts(name, source).items():
        path.write_text(text, encoding="ascii")
    subprocess.run(["meson", "setup", folder / "build", source, "--buildtype=release", *options], check=True)
    subprocess.run(["ninja", "-C", folder / "build", "tests/gpu/hopper_bench", "client/libgemmd.so.0.1.0"], check=True)
    print(folder / "build/tests/gpu/hopper_bench")


def main():
    words = sys.argv[1:]
    if words == ["--check"]:
        for name in EDITS:
            texts(name, ROOT)
        print(f"{len(EDITS)} edits apply")
    elif len(words) >= 2 and words[0] in EDITS:
        build(words[0], pathlib.Path(words[1]).resolve(), words[2:])
    else:
        sys.exit(f"{__doc__}\nNAME: {', '.join(EDITS)}")


if __name__ == "__main__":
    main()
