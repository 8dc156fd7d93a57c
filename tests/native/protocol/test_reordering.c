/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams that overtake each other are not lost: what reordering costs in NAKs, repairs and
 * window, alone and together with loss, with the real agents in virtual time.
 *
 *   test_reordering                 the tests
 *   test_reordering figures         the table of docs/loss-recovery.md
 */
#include <string.h>

#include "ccsim.h"
#include "check.h"
#include "ps_reordering.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
enum { KIB = 1024, MIB = 1024 * 1024 };

/* 100 Mbit/s, a round trip of 20 ms: 250 KB under way fill it. */
static ccsim_options_t path(uint32_t reorder_ppm, uint32_t loss_ppm, int32_t congestion_control)
{
    return (ccsim_options_t){ .rtt_ns = 20 * MS,
                              .bandwidth_bytes_per_s = 12500000,
                              .queue_bytes = 250000,
                              .reorder_ppm = reorder_ppm,
                              .reorder_ns = 3 * MS,
                              .loss_ppm = loss_ppm,
                              .flows = 1,
                              .mtu = 1408,
                              .term_length = 4 * MIB,
                              .window_bytes = 512 * KIB,
                              .congestion_control = congestion_control,
                              .seed = 3,
                              .offered_bytes_per_s = 10000000 };
}

typedef struct cost {
    double goodput;          /* bytes a second */
    int64_t naks, repairs;   /* frames, ranges */
    int64_t lost, reordered; /* datagrams, both ways */
    int64_t window;          /* congestion window at the end */
    double gaps;             /* open on average */
    int64_t counted;         /* bytes that the receiver counts as lost */
} cost_t;

static cost_t run(const ccsim_options_t *options)
{
    ccsim_t *sim = ccsim_open(options);
    ccsim_flow_state_t before, now;
    ps_simnet_stats_t start, end;
    int64_t naks, repairs, gaps = 0;
    ccsim_run(sim, 2 * S);
    ccsim_flow(sim, 0, &before);
    ccsim_path(sim, &start);
    naks = ccsim_system(sim, 1, PS_SYS_NAKS_SENT);
    repairs = ccsim_system(sim, 0, PS_SYS_RETRANSMITS_SENT);
    for (int32_t i = 0; i < 1000; i++) {
        ccsim_run(sim, 10 * MS);
        ccsim_flow(sim, 0, &now);
        gaps += now.missing_gaps;
    }
    ccsim_path(sim, &end);
    const cost_t cost = { .goodput = (double)(now.delivered - before.delivered) / 10,
                          .naks = ccsim_system(sim, 1, PS_SYS_NAKS_SENT) - naks,
                          .repairs = ccsim_system(sim, 0, PS_SYS_RETRANSMITS_SENT) - repairs,
                          .lost = (int64_t)(end.lost - start.lost),
                          .reordered = (int64_t)(end.reordered - start.reordered),
                          .window = now.congestion_window,
                          .gaps = (double)gaps / 1000,
                          .counted = now.lost_bytes - before.lost_bytes };
    ccsim_close(sim);
    return cost;
}

/* ---- what is learned ------------------------------------------------------------------------- */

static void late_is_told_from_lost(void)
{
    ps_reordering_t path_of = { 0 };
    ps_reordering_filled(&path_of, 0, 1408, 4 * MS, 0, 20 * MS); /* before anybody asked */
    CHECK_EQ(path_of.window_ns, 5 * MS);
    ps_reordering_filled(&path_of, 1408, 2816, 3 * MS, 0, 20 * MS);
    CHECK_EQ(path_of.window_ns, 5 * MS); /* the latest counts */
    ps_reordering_filled(&path_of, 2816, 4224, 8 * MS, 1, 20 * MS);
    ps_reordering_filled(&path_of, 4224, 5632, 9 * MS, 2, 20 * MS);
    CHECK_EQ(path_of.window_ns, 5 * MS); /* may have been the repair */
    ps_reordering_twice(&path_of, 4224, 5632, 20 * MS);
    CHECK_EQ(path_of.window_ns, 5 * MS); /* requested twice: two repairs */
    ps_reordering_twice(&path_of, 2816, 4224, 20 * MS);
    CHECK_EQ(path_of.window_ns, 10 * MS); /* here is the repair: that was late */
    ps_reordering_lost(&path_of);
    const int64_t faded_ns = path_of.window_ns;
    ps_reordering_twice(&path_of, 2816, 4224, 20 * MS);
    CHECK_EQ(path_of.window_ns, faded_ns); /* a third copy proves nothing more */
    ps_reordering_filled(&path_of, 9856, 11264, 12 * MS, 1, 20 * MS);
    ps_reordering_twice(&path_of, 8448, 9856, 20 * MS); /* its neighbour came twice */
    CHECK_EQ(path_of.window_ns, faded_ns);
}

static void the_window_is_bounded_and_fades(void)
{
    ps_reordering_t path_of = { 0 };
    int32_t losses = 0;
    ps_reordering_filled(&path_of, 0, 32, 100 * MS, 0, 20 * MS);
    CHECK_EQ(path_of.window_ns, 20 * MS); /* a repair would have come */
    while (path_of.window_ns > 0) {
        ps_reordering_lost(&path_of);
        losses++;
    }
    CHECK(losses > 50 && losses < 300);
    ps_reordering_filled(&path_of, 0, 32, 100 * MS, 0, 0);
    CHECK_EQ(path_of.window_ns, MS); /* the round trip is not known */
}

/* ---- on a path ------------------------------------------------------------------------------- */

static void reordering_costs_nothing(void)
{
    ccsim_options_t options = path(20000, 0, PS_CC_STATIC);
    cost_t cost = run(&options);
    CHECK(cost.reordered > 1000 && cost.lost == 0);
    CHECK(cost.naks <= 2 && cost.repairs <= 2); /* 1377 without a window */
    CHECK(cost.goodput > 9.9e6 && cost.counted <= 2 * 1408);
    options = path(20000, 0, PS_CC_CUBIC);
    cost = run(&options);
    CHECK(cost.naks <= 2);
    CHECK(cost.goodput > 9.9e6); /* 0.74e6 without a window */
}

static void losses_are_still_repaired_once(void)
{
    ccsim_options_t options = path(20000, 1000, PS_CC_STATIC);
    const cost_t both = run(&options);
    options = path(0, 1000, PS_CC_STATIC);
    const cost_t only_loss = run(&options);
    options.duplicate_ppm = 20000;
    const cost_t twice = run(&options);
    CHECK(both.lost > 50 && both.naks <= both.lost * 5 / 4);
    CHECK(both.goodput > 9.9e6 && both.counted <= both.lost * 1408 * 5 / 4);
    CHECK(only_loss.naks <= only_loss.lost * 5 / 4 && only_loss.gaps < 0.25);
    CHECK(both.gaps < only_loss.gaps + 0.6); /* those that are late, and 4 ms more */
    CHECK(twice.naks <= twice.lost * 5 / 4 && twice.gaps < 0.25);
}

/* A sender that does not know our trailers is requested one gap at a time: the same holds. */
static void towards_an_aeron_sender_too(void)
{
    ccsim_options_t options = path(20000, 0, PS_CC_CUBIC);
    options.plain = 1;
    const cost_t cost = run(&options);
    CHECK(cost.naks <= 2 && cost.goodput > 9.9e6);
}

static void show(const char *what, cost_t cost)
{
    printf("%-44s %6.2f MB/s %6lld NAKs %6lld repairs %6lld lost %6lld reordered %8lld window "
           "%6.2f gaps\n",
           what, cost.goodput / 1e6, (long long)cost.naks, (long long)cost.repairs,
           (long long)cost.lost, (long long)cost.reordered, (long long)cost.window, cost.gaps);
}

static void figures(void)
{
    ccsim_options_t options = path(20000, 0, PS_CC_STATIC);
    show("static, 2 % reordered", run(&options));
    options = path(20000, 0, PS_CC_CUBIC);
    show("cubic, 2 % reordered", run(&options));
    options = path(20000, 1000, PS_CC_STATIC);
    show("static, 2 % reordered, 0.1 % lost", run(&options));
    options = path(20000, 1000, PS_CC_CUBIC);
    show("cubic, 2 % reordered, 0.1 % lost", run(&options));
    options = path(0, 1000, PS_CC_STATIC);
    show("static, 0.1 % lost", run(&options));
    options = path(0, 1000, PS_CC_CUBIC);
    show("cubic, 0.1 % lost", run(&options));
    options = path(20000, 0, PS_CC_CUBIC);
    options.plain = 1;
    show("cubic, 2 % reordered, plain sender", run(&options));
    options = path(20000, 1000, PS_CC_STATIC);
    options.plain = 1;
    show("static, 2 % reordered, 0.1 % lost, plain", run(&options));
    options = path(0, 1000, PS_CC_STATIC);
    options.duplicate_ppm = 20000;
    show("static, 0.1 % lost, 2 % twice", run(&options));
    options = path(0, 10000, PS_CC_STATIC);
    show("static, 1 % lost", run(&options));
    for (int32_t gaps = 1; gaps <= 16; gaps *= 2) {
        char name[64];
        options = path(20000, 1000, PS_CC_STATIC);
        options.max_gaps = gaps;
        snprintf(name, sizeof name, "static, 2 %% reordered, 0.1 %% lost, %d gaps", gaps);
        show(name, run(&options));
    }
}

#define TEST(name) (name(), printf("ok %s\n", #name))

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "figures") == 0) {
        figures();
        return 0;
    }
    TEST(late_is_told_from_lost);
    TEST(the_window_is_bounded_and_fades);
    TEST(reordering_costs_nothing);
    TEST(losses_are_still_repaired_once);
    TEST(towards_an_aeron_sender_too);
    return 0;
}
