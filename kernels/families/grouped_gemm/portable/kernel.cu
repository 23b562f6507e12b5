/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, the kernel -------------------------------------------------------------------- */

KERNEL grouped_gemm_portable(PARAMS p)
{
    const u32 ring = shared_base();
    int *start = (int *)(shared_memory + NUM_STAGES * STAGE_BYTES);
    int *ends = start + p.experts + 1;
    const int warp = THREAD / 32, warp_r = warp / WARPS_C, warp_c = warp % WARPS_C;
    const int a = first_a(warp_r), b = first_b(warp_c);

    if (warp == 0)
        scan_experts(&p, start, ends);
    barrier();
    const int col_tiles = (p.tile_cols + TC - 1) / TC;
#if MODE == MODE_DW
    const int tiles = p.experts * ((p.tile_rows + TR - 1) / TR) * col_tiles;
#else
    const int tiles = ends[p.experts - 1] * col_tiles;
#endif
    if (BLOCK >= tiles)
        return;

    struct cursor cursor;
    cursor_enter(&cursor, &p, start, ends, BLOCK);
#pragma unroll 1
    for (int s = 0; s < NUM_STAGES - 1; s++) {
        if (cursor.id < tiles) {
            copy_block(&cursor, &p, ring + s * STAGE_BYTES);
            cursor_next(&cursor, &p, start, ends, tiles);
        }
        copy_commit();
    }
    copy_wait();
    barrier();

    u32 reading = ring;
    const u32 ring_end = ring + NUM_STAGES * STAGE_BYTES;
    struct fragments f[2];
    load_a(f[0].a, reading, a, 0);
    load_b(f[0].b, reading, b, 0);

#pragma unroll 1
    for (int id = BLOCK; id < tiles; id += BLOCKS) {
        float acc[FR][FC][4];
#pragma unroll
        for (int i = 0; i < FR * FC * 4; i++)
            acc[i / (FC * 4)][i / 4 % FC][i % 4] = 0.0f;
#if SCALED
        const struct tile t = locate_tile(&p, start, ends, id);
        float part[FR][FC][4];
#pragma unroll
        for (int i = 0; i < FR * FC * 4; i++)
            part[i / (FC * 4)][i / 4 % FC][i % 4] = 0.0f;
#else
        float (*const part)[FC][4] = acc;
#endif

        const int blocks = tile_blocks(&p, start, id);
#pragma unroll 1
        for (int block = blocks; block > 0; block--) {
            /* Fragments of the next step are read while this step is multiplied. Before the last step the next stage
             * must have arrived for every thread. After that barrier no thread reads this stage, so new copies may
             * overwrite it. */
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                if (step == STEPS - 1) {
                    copy_wait();
                    barrier();
                    reading += STAGE_BYTES;
                    reading = reading == ring_end ? ring : reading;
                }
                if (step == 0) {
                    const u32 next = reading == ring ? ring_end : reading;
                    if (cursor.id < tiles) {
                        copy_block(&cursor, &p, next - STAGE_BYTES);
                        cursor_next(&cursor, &p, start, ends, tiles);
                    }
                    copy_commit();
                }
                load_a(f[(step + 1) % 2].a, reading, a, (step + 1) % STEPS);
                load_b(f[(step + 1) % 2].b, reading, b, (step + 1) % STEPS);
                multiply_all(part, &f[step % 2]);
            }
#if SCALED
            if (block == 1 || (blocks - block + 1) % (PROMOTE_SUM / TD) == 0)
                promote(&p, &t, blocks - block, part, acc, warp_r, warp_c);
#endif
        }
#if SCALED
        scale_sums(&p, &t, acc, warp_r, warp_c);
#else
        const struct tile t = locate_tile(&p, start, ends, id);
#endif
        store_tile(&p, &t, acc, warp_r, warp_c);
    }
}
