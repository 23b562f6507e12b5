/* SPDX-License-Identifier: Apache-2.0 */
/* ---- clusters: thread blocks that work together ---------------------------------------------- */
/*
 * KSPLIT     the thread blocks of a cluster have the same tile, and parts of its sums (split.cu)
 * CLUSTER_R  in dW: two thread blocks have tiles of adjacent rows, and share wgmma's operand B
 * CLUSTER_C  in dW: two thread blocks have tiles of adjacent columns, and share operand A; with SWAP_AB: tiles of
 *            adjacent routed rows of an expert, and share its weights
 *
 * Each thread block of a pair loads half of the shared operand, into the shared memory of both (.multicast::cluster):
 * L2 is read once for two. When all SMs read, L2 delivers about 40 bytes a cycle to each. Reads also cost energy, and
 * forward and dX already run at the card's power limit. Pairs save up to 9 % of the time with 4096 tokens.
 *
 * A tile number means two tiles, one for each thread block of a pair; the second may be empty. Each stage of operands
 * has two mbarriers. "Empty" waits for the consumers of both thread blocks, since both producers write the stage.
 * "Full" waits for both halves and the thread block's own operand. The other thread block's bytes may come before this
 * producer announces them (mbarrier.arrive.expect_tx): the phase cannot end before that arrival.
 */
#if KSPLIT || CLUSTER > 1
/* barrier.cluster: each thread block arrives when its mbarriers are initialised, and waits in set_up_everywhere()
 * before it arrives at mbarriers of another thread block. */
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
/* Arrives at the "empty" mbarrier of both thread blocks: this warp has read its part of the stage. Called by each whole
 * warp of the consumers once per stage. */
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
