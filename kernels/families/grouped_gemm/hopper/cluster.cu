/* SPDX-License-Identifier: Apache-2.0 */
/* ---- clusters: thread blocks that work together ---------------------------------------------- */
/*
 * KSPLIT     the thread blocks of a cluster have the same tile, and parts of its sums (split.cu)
 * CLUSTER_R  in dW: two thread blocks have tiles of adjacent rows, and share B
 * CLUSTER_C  in dW: two thread blocks have tiles of adjacent columns, and share A; with SWAP_AB: tiles of adjacent
 *            routed rows of an expert, and share its weights
 *
 * Each thread block of a pair loads half of the shared operand, into the shared memory of both: L2 is read once for
 * two. When all SMs read, L2 delivers about 40 bytes a cycle to each. These reads also cost energy, and forward and dX
 * already run at the card's power limit. Pairs save up to 9 % of the time with 4096 tokens.
 *
 * Tile numbers count pairs; the last of a pair's two tiles may be empty. A stage is empty when the consumers of both
 * thread blocks have given it back, since both producers write the stage. A stage is full when both halves and the
 * thread block's own operand have come. Bytes may come before the barrier expects them, because the phase cannot end
 * before this thread block's own producer arrives.
 */
#if KSPLIT || CLUSTER > 1
/* Barriers must exist before another thread block arrives. */
INLINE void set_up_arrive(void)
{
    cluster_barrier_arrive();
}

INLINE void set_up_everywhere(void)
{
    cluster_barrier_wait();
}
#else
INLINE void set_up_arrive(void)
{
}

INLINE void set_up_everywhere(void)
{
}
#endif

#if CLUSTER > 1
/* Tells the producers of both thread blocks that this warp has read its part of the stage. Each whole warp calls
 * it once per stage. */
INLINE void give_to_all(u32 bar)
{
    if (LANE < CLUSTER)
        cluster_arrive_read(cluster_address(bar, LANE));
}
#else
INLINE void give_to_all(u32 bar)
{
    barrier_arrive(bar, LANE == 0);
}
#endif
