/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of proto/ on a hit, in ns per call. A ping-pong over a socket takes some 10 us; a hit
 * may take at most a quarter longer than that. */
#include <stdio.h>
#include <time.h>

#include "proto/request.h"
#include "proto/rpc.h"
#include "tests/unit/proto/common.h"

static const char sorted[] =
    "{\"problem\":{\"K\":2048,\"M\":32768,\"N\":1536,\"dtype_acc\":\"fp32\",\"dtype_in\":\"bf16\","
    "\"dtype_out\":\"bf16\",\"experts\":128,\"fuse_mul_post\":false,\"mode\":\"forward\","
    "\"op\":\"grouped_gemm\",\"permute_x\":true,\"permute_y\":false,\"quant\":\"none\","
    "\"routing\":\"uniform\",\"topk\":8}}";
static const char shuffled[] =
    "{\"problem\":{\"op\":\"grouped_gemm\",\"mode\":\"forward\",\"topk\":8,\"M\":32768,\"N\":1536,"
    "\"K\":2048,\"experts\":128,\"routing\":\"uniform\",\"permute_y\":false,\"permute_x\":true,"
    "\"dtype_in\":\"bf16\",\"dtype_out\":\"bf16\",\"dtype_acc\":\"fp32\",\"quant\":\"none\","
    "\"fuse_mul_post\":false},\"wait\":\"cached\"}";
static const char class[] = "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700";

static struct wire_doc *doc;
static struct wire_buf message = {0};
static struct rpc_message rpc;
static struct problem problem, bucket;
static struct request request;
static struct key key;
static volatile uint64_t sink;

static void make_message(const char *params)
{
    wire_buf_clear(&message);
    rpc_put_request(&message, 7, "get");
    wire_from_json(&message, params, NULL);
}

static void run_scan(void)
{
    sink += (uint64_t)scan_all(message.data, message.len, REQUEST_BYTES_MAX, NULL);
}

static void run_decode(void)
{
    rpc_decode(doc, message.data, message.len, &rpc, NULL);
}

static void run_unpack(void)
{
    problem_unpack(&problem, wire_find(rpc.params, "problem"), NULL);
}

static void run_request(void)
{
    request_unpack(&request, rpc.params, NULL);
    request_deinit(&request);
}

static void run_bucket(void)
{
    problem_bucket(&problem, BUCKET_SQRT2, &bucket);
}

static void run_key(void)
{
    key_make(&key, &bucket, class, NULL);
    sink += key.hash;
}

static void run_all(void)
{
    run_decode();
    run_unpack();
    run_bucket();
    run_key();
}

static void run_get(void)
{
    run_scan();
    run_decode();
    request_unpack(&request, rpc.params, NULL);
    problem_bucket(&request.problem, BUCKET_SQRT2, &bucket);
    run_key();
    request_deinit(&request);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Prints the shortest of several rounds: the cost without interruptions. */
static void measure(const char *name, void (*run)(void))
{
    enum { ROUNDS = 400, CALLS = 250 }; /* a round fits into a slice of a busy CPU */
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) {
            run();
        }
        double each = (now_ns() - start) / CALLS;
        best = each < best ? each : best;
    }
    printf("  %-44s %7.0f ns\n", name, best);
}

static void measure_all(const char *what, const char *params)
{
    make_message(params);
    run_all();
    printf("%s: %zu bytes, %u fields\n", what, message.len, problem.fields.n);
    measure("scan_feed", run_scan);
    measure("rpc_decode", run_decode);
    measure("problem_unpack", run_unpack);
    measure("request_unpack", run_request);
    measure("problem_bucket", run_bucket);
    measure("key_make", run_key);
    measure("rpc_decode + unpack + bucket + key", run_all);
    measure("scan + rpc_decode + request + bucket + key", run_get);
}

int main(void)
{
    test_ops_set();
    doc = wire_doc_new();
    measure_all("fields in order", sorted);
    measure_all("fields in any order", shuffled);
    wire_doc_free(doc);
    wire_buf_deinit(&message);
    return 0;
}
