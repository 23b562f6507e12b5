/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libnvrtc (stub.h): every program compiles to the same small ELF file. */
#include <elf.h>

#include "tests/cuda_stub/stub.h"

typedef int result;
static int stub_calls;
static char program_of_stub;

#define MAY_FAIL() STUB_MAY_FAIL(result)

static const char *log_text(void)
{
    const char *text = getenv("GEMMD_STUB_LOG");
    return text ? text : "ptxas info    : Used 64 registers, used 1 barriers, 8 bytes smem\n";
}

STUB_EXPORT result nvrtcVersion(int *major, int *minor);
STUB_EXPORT result nvrtcVersion(int *major, int *minor)
{
    long version = stub_number("GEMMD_STUB_NVRTC", 13000);
    *major = (int)(version / 1000);
    *minor = (int)(version % 1000 / 10);
    return 0;
}

STUB_EXPORT const char *nvrtcGetErrorString(result r);
STUB_EXPORT const char *nvrtcGetErrorString(result r)
{
    return r == 6 ? "NVRTC_ERROR_COMPILATION" : r == 1 ? "NVRTC_ERROR_OUT_OF_MEMORY" : "NVRTC_ERROR";
}

STUB_EXPORT result nvrtcCreateProgram(void **program, const char *source, const char *name, int n,
                                      const char *const *headers, const char *const *names);
STUB_EXPORT result nvrtcCreateProgram(void **program, const char *source, const char *name, int n,
                                      const char *const *headers, const char *const *names)
{
    (void)source, (void)name, (void)n, (void)headers, (void)names;
    MAY_FAIL();
    *program = &program_of_stub;
    return 0;
}

STUB_EXPORT result nvrtcDestroyProgram(void **program);
STUB_EXPORT result nvrtcDestroyProgram(void **program)
{
    *program = NULL;
    return 0;
}

STUB_EXPORT result nvrtcCompileProgram(void *program, int n, const char *const *options);
STUB_EXPORT result nvrtcCompileProgram(void *program, int n, const char *const *options)
{
    (void)program, (void)n, (void)options;
    MAY_FAIL();
    return 0;
}

STUB_EXPORT result nvrtcGetProgramLogSize(void *program, size_t *size);
STUB_EXPORT result nvrtcGetProgramLogSize(void *program, size_t *size)
{
    (void)program;
    MAY_FAIL();
    *size = strlen(log_text()) + 1;
    return 0;
}

STUB_EXPORT result nvrtcGetProgramLog(void *program, char *text);
STUB_EXPORT result nvrtcGetProgramLog(void *program, char *text)
{
    (void)program;
    MAY_FAIL();
    strcpy(text, log_text());
    return 0;
}

STUB_EXPORT result nvrtcGetCUBINSize(void *program, size_t *size);
STUB_EXPORT result nvrtcGetCUBINSize(void *program, size_t *size)
{
    (void)program;
    MAY_FAIL();
    *size = sizeof(Elf64_Ehdr);
    return 0;
}

STUB_EXPORT result nvrtcGetCUBIN(void *program, char *out);
STUB_EXPORT result nvrtcGetCUBIN(void *program, char *out)
{
    Elf64_Ehdr head = {.e_ident = ELFMAG, .e_machine = EM_CUDA};
    (void)program;
    MAY_FAIL();
    head.e_ident[EI_CLASS] = ELFCLASS64;
    memcpy(out, &head, sizeof(head));
    return 0;
}

STUB_EXPORT result nvrtcGetNumSupportedArchs(int *n);
STUB_EXPORT result nvrtcGetNumSupportedArchs(int *n)
{
    *n = 3;
    return 0;
}

STUB_EXPORT result nvrtcGetSupportedArchs(int *archs);
STUB_EXPORT result nvrtcGetSupportedArchs(int *archs)
{
    archs[0] = 80;
    archs[1] = 90;
    archs[2] = 120;
    return 0;
}
