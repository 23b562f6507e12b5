/* SPDX-License-Identifier: Apache-2.0 */
/* ---- wgmma: the matrix product, an instruction for each width ---------------------------------------- */
/*
 * wgmma's columns are a part of its name, and its accumulator is a list of registers: so there is a
 * function for each multiple of 16 columns up to 256. What the hardware does and how operands lie in
 * shared memory, mainloop.cu says.
 */
#ifndef HOPPER_EMULATED

/* Operands of the instruction: 8 registers of the accumulator at a time. */
#define REGS_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define REGS_8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define REGS_16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define REGS_24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define REGS_32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define REGS_40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define REGS_48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define REGS_56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define REGS_64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define REGS_72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define REGS_80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define REGS_88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define REGS_96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define REGS_104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define REGS_112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define REGS_120 "%120, %121, %122, %123, %124, %125, %126, %127"
#define D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(d, i) D4(d, i), D4(d, i + 4)
#define D16(d, i) D8(d, i), D8(d, i + 8)
#define D32(d, i) D16(d, i), D16(d, i + 16)
#define D64(d, i) D32(d, i), D32(d, i + 32)

#if A_TRANSPOSED && B_TRANSPOSED
#define WGMMA_TRANSPOSE "1, 1"
#elif A_TRANSPOSED
#define WGMMA_TRANSPOSE "1, 0"
#elif B_TRANSPOSED
#define WGMMA_TRANSPOSE "0, 1"
#else
#define WGMMA_TRANSPOSE "0, 0"
#endif

/* d (64 x columns) = d * scale + a (64 x 16) b (16 x columns), asynchronously; scale is 0 or 1. One
 * function for each number of columns: `desc_a` and the next two are its operands behind those of d. */
#define WGMMA(columns, registers, desc_a, desc_b, predicate, ...)                                  \
    INLINE void wgmma_##columns(float *d, u64 a, u64 b, int scale)                                 \
    {                                                                                              \
        asm volatile("{\n\t.reg .pred p;\n\t"                                                     \
                     "setp.ne.b32 p, " predicate ", 0;\n\t"                                        \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." IN_TYPE "." IN_TYPE   \
                     " {" registers "}, " desc_a ", " desc_b ", p, 1, 1, " WGMMA_TRANSPOSE         \
                     ";\n\t}"                                                                      \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(scale));                                  \
    }

#define REGS_TO_8 REGS_0
#define REGS_TO_16 REGS_TO_8 ", " REGS_8
#define REGS_TO_24 REGS_TO_16 ", " REGS_16
#define REGS_TO_32 REGS_TO_24 ", " REGS_24
#define REGS_TO_40 REGS_TO_32 ", " REGS_32
#define REGS_TO_48 REGS_TO_40 ", " REGS_40
#define REGS_TO_56 REGS_TO_48 ", " REGS_48
#define REGS_TO_64 REGS_TO_56 ", " REGS_56
#define REGS_TO_72 REGS_TO_64 ", " REGS_64
#define REGS_TO_80 REGS_TO_72 ", " REGS_72
#define REGS_TO_88 REGS_TO_80 ", " REGS_80
#define REGS_TO_96 REGS_TO_88 ", " REGS_88
#define REGS_TO_104 REGS_TO_96 ", " REGS_96
#define REGS_TO_112 REGS_TO_104 ", " REGS_104
#define REGS_TO_120 REGS_TO_112 ", " REGS_112
#define REGS_TO_128 REGS_TO_120 ", " REGS_120

WGMMA(16, REGS_TO_8, "%8", "%9", "%10", D8(d, 0))
WGMMA(32, REGS_TO_16, "%16", "%17", "%18", D16(d, 0))
WGMMA(48, REGS_TO_24, "%24", "%25", "%26", D16(d, 0), D8(d, 16))
WGMMA(64, REGS_TO_32, "%32", "%33", "%34", D32(d, 0))
WGMMA(80, REGS_TO_40, "%40", "%41", "%42", D32(d, 0), D8(d, 32))
WGMMA(96, REGS_TO_48, "%48", "%49", "%50", D32(d, 0), D16(d, 32))
WGMMA(112, REGS_TO_56, "%56", "%57", "%58", D32(d, 0), D16(d, 32), D8(d, 48))
WGMMA(128, REGS_TO_64, "%64", "%65", "%66", D64(d, 0))
WGMMA(144, REGS_TO_72, "%72", "%73", "%74", D64(d, 0), D8(d, 64))
WGMMA(160, REGS_TO_80, "%80", "%81", "%82", D64(d, 0), D16(d, 64))
WGMMA(176, REGS_TO_88, "%88", "%89", "%90", D64(d, 0), D16(d, 64), D8(d, 80))
WGMMA(192, REGS_TO_96, "%96", "%97", "%98", D64(d, 0), D32(d, 64))
WGMMA(208, REGS_TO_104, "%104", "%105", "%106", D64(d, 0), D32(d, 64), D8(d, 96))
WGMMA(224, REGS_TO_112, "%112", "%113", "%114", D64(d, 0), D32(d, 64), D16(d, 96))
WGMMA(240, REGS_TO_120, "%120", "%121", "%122", D64(d, 0), D32(d, 64), D16(d, 96), D8(d, 112))
WGMMA(256, REGS_TO_128, "%128", "%129", "%130", D64(d, 0), D64(d, 64))

/* `columns` is a constant: of these lines one is left. */
INLINE void wgmma(float *d, u64 a, u64 b, int scale, int columns)
{
#define OF(n)                                                                                      \
    if (n <= TILE_C && columns == n)                                                               \
        wgmma_##n(d, a, b, scale);
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

/* Until all but the newest `pending` groups are done. */
#define WGMMA_WAIT(pending)                                                                        \
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory")

/* The compiler must not read d earlier than this. */
INLINE void wgmma_settle(float *d)
{
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++)
        asm volatile("" : "+f"(d[i]) :: "memory");
}
#endif
