/* SPDX-License-Identifier: Apache-2.0
 * test_throttle.c: publishers at their limit under pressure. The test plays the daemon: it sets the
 * governor's word and the limit. */
#include "ps_client_internal.h"
#include "ps_client_publication.h"
#include "stream.h"

#define MS INT64_C(1000000)

enum { SIZE = 992 };

static int64_t now_ns = 1000 * MS;
static const uint8_t message[SIZE];

typedef struct rig {
    stream_t stream;
    ps_pub_t *pub;
    ps_publication_slot_t *slot;
    int64_t position;
} rig_t;

static int64_t offer(const rig_t *rig)
{
    return ps_pub_offer(rig->pub, message, SIZE, 0);
}

static void fill(rig_t *rig)
{
    int64_t position = 1;
    while (position > 0) {
        rig->position = position;
        position = offer(rig);
    }
    CHECK(rig->position >= PS_TERM_MIN / 2);
}

static void begin(rig_t *rig)
{
    stream_open(&rig->stream, NULL);
    rig->pub = stream_pub(&rig->stream);
    ps_pub_set_clock(rig->pub, &now_ns);
    rig->slot = &rig->stream.shared->publications[rig->stream.publication_slot];
    int64_t clean = 0;
    stream_turn(&rig->stream, &clean);
    atomic_store(&rig->slot->cause, PS_CAUSE_SLOW_SUBSCRIBER);
}

static void end(rig_t *rig)
{
    ps_pub_close(rig->pub);
    stream_close(&rig->stream);
}

static void set_word(const rig_t *rig, int64_t retry_ns)
{
    ps_driver_slot_t *driver = rig->stream.shared->driver;
    atomic_store(&driver->retry_after_ns, retry_ns);
    atomic_store(&driver->pressure_ns, now_ns);
}

static void test_only_a_full_window_is_throttled(void)
{
    rig_t rig;
    begin(&rig);
    set_word(&rig, 10 * MS);
    CHECK_EQ(ps_pub_retry_after_ns(rig.pub), 10 * MS);
    for (int64_t i = 0; i < 8; i++) {
        CHECK(offer(&rig) > 0);
    }
    fill(&rig);
    CHECK_EQ(atomic_load(&rig.slot->throttled), 1);
    for (int64_t i = 2; i <= 1000; i++) { /* ignores the time to wait */
        CHECK_EQ(offer(&rig), PS_THROTTLED);
        CHECK_EQ(atomic_load(&rig.slot->throttled), i);
        CHECK_EQ(atomic_load(&rig.slot->refused[PS_CAUSE_GOVERNOR]), i);
    }
    CHECK_EQ(ps_pub_position(rig.pub), rig.position);
    ps_pressure_view_t view;
    CHECK_EQ(ps_pub_pressure(rig.pub, &view), PS_OK);
    CHECK_EQ(view.throttled, 1000);
    CHECK_EQ(view.retry_after_ns, 10 * MS);
    ps_counter_set(rig.stream.cnc, rig.stream.limit, rig.position + SIZE);
    CHECK(offer(&rig) > 0); /* the pressure is as high as before */
    end(&rig);
}

static void test_an_old_or_impossible_word_throttles_nobody(void)
{
    rig_t rig;
    begin(&rig);
    fill(&rig);
    set_word(&rig, 10 * MS);
    CHECK_EQ(offer(&rig), PS_THROTTLED);
    now_ns += PS_PRESSURE_STALE_NS - 1;
    CHECK_EQ(offer(&rig), PS_THROTTLED);
    now_ns += 1;
    CHECK_EQ(offer(&rig), PS_BACK_PRESSURED);
    static const int64_t impossible[] = { 0, -1, INT64_MIN, PS_RETRY_MOST_NS + 1, INT64_MAX };
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        set_word(&rig, impossible[i]);
        CHECK_EQ(offer(&rig), PS_BACK_PRESSURED);
        CHECK_EQ(ps_pub_retry_after_ns(rig.pub), 0);
    }
    set_word(&rig, 10 * MS);
    now_ns -= 1; /* a word from the future */
    CHECK_EQ(offer(&rig), PS_BACK_PRESSURED);
    now_ns += 1;
    end(&rig);
}

/* A stream, or one message, that must not be throttled gets the code of its limit. */
static void test_an_exempt_publisher_gets_the_code_of_the_limit(void)
{
    static const struct {
        int32_t cause;
        int64_t code;
    } cases[] = { { PS_CAUSE_SLOW_SUBSCRIBER, PS_BACK_PRESSURED },
                  { PS_CAUSE_RATE_LIMIT, PS_RATE_LIMITED },
                  { PS_CAUSE_NAK_RATE, PS_RATE_LIMITED },
                  { PS_CAUSE_CREDIT, PS_NO_CREDIT } };
    rig_t rig;
    begin(&rig);
    fill(&rig);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        atomic_store(&rig.slot->cause, cases[i].cause);
        set_word(&rig, 10 * MS);
        const int64_t refused = atomic_load(&rig.slot->refused[cases[i].cause]);
        CHECK_EQ(offer(&rig), PS_THROTTLED);
        CHECK_EQ(ps_pub_unthrottle(rig.pub), cases[i].code);
        CHECK_EQ(atomic_load(&rig.slot->refused[cases[i].cause]), refused + 1);
        CHECK_EQ(atomic_load(&rig.slot->refused[PS_CAUSE_GOVERNOR]), 0);
        CHECK_EQ(atomic_load(&rig.slot->throttled), 0);
        atomic_store(&rig.slot->never_throttle, 1);
        CHECK_EQ(ps_pub_retry_after_ns(rig.pub), 0);
        CHECK_EQ(offer(&rig), cases[i].code);
        atomic_store(&rig.slot->never_throttle, 0);
    }
    atomic_store(&rig.slot->cause, PS_CAUSE_STORAGE); /* a resource, not the load */
    CHECK_EQ(offer(&rig), PS_STORAGE);
    end(&rig);
}

int main(void)
{
    test_only_a_full_window_is_throttled();
    test_an_old_or_impossible_word_throttles_nobody();
    test_an_exempt_publisher_gets_the_code_of_the_limit();
    return 0;
}
