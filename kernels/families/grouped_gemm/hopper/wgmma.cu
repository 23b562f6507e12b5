/* SPDX-License-Identifier: Apache-2.0 */
/* ---- wgmma: the matrix product, an instruction for each width ---------------------------------------- */
/*
 * wgmma's columns are a part of its name, and its accumulator is a list of registers. So each multiple of 16 columns
 * (for tiles in grains of 8 rows, of 8) up to 256 has a function. mainloop.cu describes the hardware and the layout
 * of operands.
 */
#ifndef HOPPER_EMULATED
#if A_TRANSPOSED && B_TRANSPOSED
#define WGMMA_TRANSPOSE "1, 1"
#elif A_TRANSPOSED
#define WGMMA_TRANSPOSE "1, 0"
#elif B_TRANSPOSED
#define WGMMA_TRANSPOSE "0, 1"
#else
#define WGMMA_TRANSPOSE "0, 0"
#endif

/*
 * Accumulators are registers that PTX text declares and names, unknown to the compiler's front end. As operands of
 * inline assembly, up to 128 each way of every wgmma, they would cost more compile time than the rest of the kernel.
 * Register 8 g + j of the i-th 64 rows is named by i (a, b, c or d), g (a hexadecimal digit) and j. wgmma_settle
 * moves the values to C variables when a tile is done.
 */
#define SUMS_8(l, g)                                                                               \
    l g "0, " l g "1, " l g "2, " l g "3, " l g "4, " l g "5, " l g "6, " l g "7"
#define SUMS_4(l, g) l g "0, " l g "1, " l g "2, " l g "3"
#define TO_8(l) SUMS_8(l, "0")
#define TO_16(l) TO_8(l) ", " SUMS_8(l, "1")
#define TO_24(l) TO_16(l) ", " SUMS_8(l, "2")
#define TO_32(l) TO_24(l) ", " SUMS_8(l, "3")
#define TO_40(l) TO_32(l) ", " SUMS_8(l, "4")
#define TO_48(l) TO_40(l) ", " SUMS_8(l, "5")
#define TO_56(l) TO_48(l) ", " SUMS_8(l, "6")
#define TO_64(l) TO_56(l) ", " SUMS_8(l, "7")
#define TO_72(l) TO_64(l) ", " SUMS_8(l, "8")
#define TO_80(l) TO_72(l) ", " SUMS_8(l, "9")
#define TO_88(l) TO_80(l) ", " SUMS_8(l, "A")
#define TO_96(l) TO_88(l) ", " SUMS_8(l, "B")
#define TO_104(l) TO_96(l) ", " SUMS_8(l, "C")
#define TO_112(l) TO_104(l) ", " SUMS_8(l, "D")
#define TO_120(l) TO_112(l) ", " SUMS_8(l, "E")
#define TO_128(l) TO_120(l) ", " SUMS_8(l, "F")

#if !FP8
/* Declares the registers of the accumulators. Called once, before all other code: PTX knows the names from here to
 * the end of the kernel. */
INLINE void wgmma_declare(void)
{
    asm volatile(".reg .f32 " TO_128("a") ";");
    if (MMAS > 1)
        asm volatile(".reg .f32 " TO_128("b") ";");
    if (MMAS > 2)
        asm volatile(".reg .f32 " TO_128("c") ";");
    if (MMAS > 3)
        asm volatile(".reg .f32 " TO_128("d") ";");
}
#endif

#if FP8
/* 64 x columns sums over 32 elements of one byte; both operands lie with contiguous d. */
#define WGMMA_NAMED(columns, registers)                                                            \
    asm volatile("{\n\t.reg .pred p;\n\t"                                                         \
                 "setp.ne.b32 p, %2, 0;\n\t"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3"                  \
                 " {" registers "}, %0, %1, p, 1, 1;\n\t}"                                         \
                 :: "l"(a), "l"(b), "r"(scale))
#else
#define WGMMA_NAMED(columns, registers)                                                            \
    asm volatile("{\n\t.reg .pred p;\n\t"                                                         \
                 "setp.ne.b32 p, %2, 0;\n\t"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." IN_TYPE "." IN_TYPE       \
                 " {" registers "}, %0, %1, p, 1, 1, " WGMMA_TRANSPOSE ";\n\t}"                    \
                 :: "l"(a), "l"(b), "r"(scale))
#endif

#if FP8
/* Each width has temporary sums of its own, "s128_00" and so on: with common registers ptxas serialised the wgmmas of
 * some kernels with several widths. */
#define WGMMA(columns, registers)                                                                  \
    INLINE void wgmma_declare_##columns(void)                                                      \
    {                                                                                              \
        asm volatile(".reg .f32 " registers("s" #columns "_") ";");                                \
        if (TEMPORARIES > 1)                                                                       \
            asm volatile(".reg .f32 " registers("t" #columns "_") ";");                            \
    }                                                                                              \
    INLINE void wgmma_##columns(int i, u64 a, u64 b, int scale)                                    \
    {                                                                                              \
        if (i == 0)                                                                                \
            WGMMA_NAMED(columns, registers("s" #columns "_"));                                     \
        if (TEMPORARIES > 1 && i == 1)                                                             \
            WGMMA_NAMED(columns, registers("t" #columns "_"));                                     \
    }
#else
/* The sums of the i-th 64 rows (64 x columns) = scale * the same sums + a (64 x 16) b (16 x columns), asynchronously;
 * scale is 0 or 1, and i a constant. */
#define WGMMA(columns, registers)                                                                  \
    INLINE void wgmma_##columns(int i, u64 a, u64 b, int scale)                                    \
    {                                                                                              \
        if (i == 0)                                                                                \
            WGMMA_NAMED(columns, registers("a"));                                                  \
        if (MMAS > 1 && i == 1)                                                                    \
            WGMMA_NAMED(columns, registers("b"));                                                  \
        if (MMAS > 2 && i == 2)                                                                    \
            WGMMA_NAMED(columns, registers("c"));                                                  \
        if (MMAS > 3 && i == 3)                                                                    \
            WGMMA_NAMED(columns, registers("d"));                                                  \
    }
#endif

WGMMA(16, TO_8)
WGMMA(32, TO_16)
WGMMA(48, TO_24)
WGMMA(64, TO_32)
WGMMA(80, TO_40)
WGMMA(96, TO_48)
WGMMA(112, TO_56)
WGMMA(128, TO_64)
WGMMA(144, TO_72)
WGMMA(160, TO_80)
WGMMA(176, TO_88)
WGMMA(192, TO_96)
WGMMA(208, TO_104)
WGMMA(224, TO_112)
WGMMA(240, TO_120)
WGMMA(256, TO_128)

#if SWAP_AB && CLUSTER_C > 1
#define TO_12(l) TO_8(l) ", " SUMS_4(l, "1")
#define TO_20(l) TO_16(l) ", " SUMS_4(l, "2")
#define TO_28(l) TO_24(l) ", " SUMS_4(l, "3")
#define TO_36(l) TO_32(l) ", " SUMS_4(l, "4")
#define TO_44(l) TO_40(l) ", " SUMS_4(l, "5")
#define TO_52(l) TO_48(l) ", " SUMS_4(l, "6")
#define TO_60(l) TO_56(l) ", " SUMS_4(l, "7")
#define TO_68(l) TO_64(l) ", " SUMS_4(l, "8")
#define TO_76(l) TO_72(l) ", " SUMS_4(l, "9")
#define TO_84(l) TO_80(l) ", " SUMS_4(l, "A")
#define TO_92(l) TO_88(l) ", " SUMS_4(l, "B")
#define TO_100(l) TO_96(l) ", " SUMS_4(l, "C")
#define TO_108(l) TO_104(l) ", " SUMS_4(l, "D")
#define TO_116(l) TO_112(l) ", " SUMS_4(l, "E")
#define TO_124(l) TO_120(l) ", " SUMS_4(l, "F")

WGMMA(24, TO_12)
WGMMA(40, TO_20)
WGMMA(56, TO_28)
WGMMA(72, TO_36)
WGMMA(88, TO_44)
WGMMA(104, TO_52)
WGMMA(120, TO_60)
WGMMA(136, TO_68)
WGMMA(152, TO_76)
WGMMA(168, TO_84)
WGMMA(184, TO_92)
WGMMA(200, TO_100)
WGMMA(216, TO_108)
WGMMA(232, TO_116)
WGMMA(248, TO_124)
#endif

#define TAKE_8(d, l, g)                                                                            \
    asm volatile("mov.f32 %0, " l g "0;\n\tmov.f32 %1, " l g "1;\n\t"                             \
                 "mov.f32 %2, " l g "2;\n\tmov.f32 %3, " l g "3;\n\t"                             \
                 "mov.f32 %4, " l g "4;\n\tmov.f32 %5, " l g "5;\n\t"                             \
                 "mov.f32 %6, " l g "6;\n\tmov.f32 %7, " l g "7;"                                  \
                 : "=f"((d)[0]), "=f"((d)[1]), "=f"((d)[2]), "=f"((d)[3]), "=f"((d)[4]),           \
                   "=f"((d)[5]), "=f"((d)[6]), "=f"((d)[7]))
#define TAKE(g, name)                                                                              \
    if (g * 8 < ACCUMULATORS && i == 0)                                                            \
        TAKE_8(d + g * 8, "a", name);                                                              \
    if (g * 8 < ACCUMULATORS && MMAS > 1 && i == 1)                                                \
        TAKE_8(d + g * 8, "b", name);                                                              \
    if (g * 8 < ACCUMULATORS && MMAS > 2 && i == 2)                                                \
        TAKE_8(d + g * 8, "c", name);                                                              \
    if (g * 8 < ACCUMULATORS && MMAS > 3 && i == 3)                                                \
        TAKE_8(d + g * 8, "d", name);

/* Moves the sums of the i-th 64 rows from the PTX registers to acc[i], which is undefined before. */
INLINE void wgmma_settle(float acc[MMAS][ACCUMULATORS], int i)
{
    float *d = acc[i];
    TAKE(0x0, "0")
    TAKE(0x1, "1")
    TAKE(0x2, "2")
    TAKE(0x3, "3")
    TAKE(0x4, "4")
    TAKE(0x5, "5")
    TAKE(0x6, "6")
    TAKE(0x7, "7")
    TAKE(0x8, "8")
    TAKE(0x9, "9")
    TAKE(0xA, "A")
    TAKE(0xB, "B")
    TAKE(0xC, "C")
    TAKE(0xD, "D")
    TAKE(0xE, "E")
    TAKE(0xF, "F")
}

#if FP8
INLINE void wgmma_declare(void)
{
#define OF(n)                                                                                      \
    if (n == TILE_C || (SWAP_AB && HAS_WIDTH(n)))                                                  \
        wgmma_declare_##n();
    EACH_WIDTH(OF)
#undef OF
}
#endif

/* Issues a wgmma of `columns` columns, a constant: of all calls below the compiler keeps one. */
INLINE void wgmma(float acc[MMAS][ACCUMULATORS], int i, u64 a, u64 b, int scale, int columns)
{
    (void)acc;
#define OF(n)                                                                                      \
    if (n <= TILE_C && columns == n)                                                               \
        wgmma_##n(i, a, b, scale);
    EACH_WIDTH(OF)
#undef OF
}

INLINE void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

INLINE void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the newest `pending` groups are done. */
#define WGMMA_WAIT(pending)                                                                        \
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory")
#endif
