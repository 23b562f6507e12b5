/* SPDX-License-Identifier: Apache-2.0 */
/* ---- clusters: blocks of threads that work together ---------------------------------------------- */
/*
 * KSPLIT     the blocks of a cluster have the same tile, and parts of its sums (split.cu)
 * CLUSTER_R  in dW: two blocks have tiles of adjacent rows, and share B
 * CLUSTER_C  in dW: two blocks have tiles of adjacent columns, and share A; with SWAP_AB: of adjacent routed rows of an
 *            expert, and share its weights
 *
 * Each of two that share an operand loads half of it, into the shared memory of both: so L2 is
 * read once for two. All SMs together get some 40 bytes a cycle and SM out of L2, and what they read there costs energy, of which
 * forward and dX have no more to spend than the card's limit: so they gain (up to 9 % with 4096 tokens).
 *
 * What the tiles' numbers count are pairs, of whose two tiles the last may have nothing
 * that exists. A stage is empty when the consumers of both have given it back, since both producers write to
 * it, and full when both halves and the block's own operand have come. Bytes may come before the barrier
 * expects them: its phase cannot end without its own producer's arrival.
 */
#if KSPLIT || CLUSTER > 1
/* Barriers must be there before another block arrives at them. */
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
/* By whole warps, each once: this part of the stage has been read, for the producers of both blocks. */
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
