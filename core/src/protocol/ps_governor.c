/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_governor.h"

#include <string.h>

#include "ps_assert.h"

/* A few waits say little: a window counts as many at least. */
enum { LEAST_WAITS = 32, BUSY_ALONE = 150000, SMOOTH = 2 };
#define STATUS_LEAST_NS INT64_C(500000)
#define STATUS_MOST_NS  INT64_C(10000000) /* the same value as PS_STATUS_MOST_NS */
#define RETRY_NS        INT64_C(10000000)
#define RETRY_MOST_NS   INT64_C(1000000000)

void ps_governor_init(ps_governor_t *governor)
{
    memset(governor, 0, sizeof(*governor));
    governor->sampled_ns = INT64_MIN / 2;
    governor->high_since_ns = -1;
    governor->forced = -1;
}

static int32_t part(int64_t value, int64_t of)
{
    if (value <= 0) {
        return 0;
    }
    return value >= of ? PS_GOVERNOR_FULL : (int32_t)(value * PS_GOVERNOR_FULL / of);
}

static void measure(ps_governor_t *governor, const ps_governor_sample_t *sample, int64_t elapsed_ns)
{
    const int64_t waits = governor->waits > LEAST_WAITS ? governor->waits : LEAST_WAITS;
    const int64_t ready_ns = elapsed_ns > sample->idle_ns ? elapsed_ns - sample->idle_ns : 0;
    int64_t mean_ns = governor->waited_ns / waits;
    if (sample->ran_ns >= 0 && sample->ran_ns < ready_ns) { /* other programs ran meanwhile */
        mean_ns = (int64_t)((double)mean_ns * (double)sample->ran_ns / (double)ready_ns);
    }
    governor->latency_ns += (mean_ns - governor->latency_ns) / SMOOTH;
    governor->depth = part(sample->late_streams, (int64_t)sample->workers * PS_GOVERNOR_DEPTH);
    governor->latency = part(governor->latency_ns, PS_GOVERNOR_LATENCY_NS);
    governor->busy = part(ready_ns, elapsed_ns);
    const int32_t bound = BUSY_ALONE + governor->latency;
    const int32_t busy = governor->busy < bound ? governor->busy : bound;
    int32_t pressure = governor->depth > governor->latency ? governor->depth : governor->latency;
    pressure = pressure > busy ? pressure : busy;
    governor->pressure = governor->forced >= 0 ? governor->forced : pressure;
    governor->waited_ns = 0;
    governor->waits = 0;
}

/* Returns the value between least and most, by the pressure from `from` to full. */
static int64_t between(int32_t pressure, int32_t from, int64_t least, int64_t most)
{
    return least + (most - least) * (pressure - from) / (PS_GOVERNOR_FULL - from);
}

static void climb(ps_governor_t *governor, int64_t now_ns)
{
    const int32_t pressure = governor->pressure;
    PS_ASSERT(pressure >= 0 && pressure <= PS_GOVERNOR_FULL);
    governor->coalesce_ns =
        pressure > PS_GOVERNOR_COALESCE
            ? between(pressure, PS_GOVERNOR_COALESCE, 0, PS_GOVERNOR_COALESCE_NS)
            : 0;
    governor->status_interval_ns =
        pressure > PS_GOVERNOR_STATUS
            ? between(pressure, PS_GOVERNOR_STATUS, STATUS_LEAST_NS, STATUS_MOST_NS)
            : 0;
    if (pressure <= PS_GOVERNOR_DEFER) {
        governor->high_since_ns = -1;
    } else if (governor->high_since_ns < 0) {
        governor->high_since_ns = now_ns;
    }
    if (pressure < PS_GOVERNOR_RELEASE) {
        governor->defers = false;
    } else if (governor->high_since_ns >= 0 &&
               now_ns - governor->high_since_ns >= PS_GOVERNOR_SUSTAINED_NS) {
        governor->defers = true;
    }
    const int64_t retry_ns = RETRY_NS + 2 * governor->latency_ns;
    governor->retry_after_ns = pressure < PS_GOVERNOR_THROTTLE ? 0
                               : retry_ns < RETRY_MOST_NS      ? retry_ns
                                                               : RETRY_MOST_NS;
    governor->holds = governor->defers || governor->coalesce_ns > 0;
}

bool ps_governor_step(ps_governor_t *governor, const ps_governor_sample_t *sample)
{
    const ps_governor_t before = *governor;
    const int64_t elapsed_ns = sample->now_ns - governor->sampled_ns;
    governor->sampled_ns = sample->now_ns;
    if (elapsed_ns > PS_GOVERNOR_STALE_NS) { /* nothing waited in between */
        const int32_t forced = governor->forced;
        ps_governor_init(governor);
        governor->sampled_ns = sample->now_ns;
        governor->forced = forced;
        governor->pressure = forced >= 0 ? forced : 0;
    } else if (elapsed_ns > 0) {
        measure(governor, sample, elapsed_ns);
    }
    climb(governor, sample->now_ns);
    return governor->holds != before.holds || governor->defers != before.defers;
}
