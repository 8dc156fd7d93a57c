/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_lead.c: what ps-rate promises to those who publish.  In any second at most 1.1 of the rate
 * is accepted, and two messages; and on the network a publisher is never more than a tenth of a
 * second of the rate ahead of the sender.  Seen by what publishers had accepted, and when.
 */
#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

#define SECOND_NS INT64_C(1000000000)

/* Returns the bytes of the log that a message takes, frame headers included. */
int64_t ps_sim_framed_bytes(const ps_publication_t *pub, int32_t size)
{
    const int32_t most = pub->log.mtu - PS_HEADER_BYTES;
    const int32_t whole = size > 0 ? (size - 1) / most : 0;
    return (int64_t)whole * pub->log.mtu + ps_align32(size - whole * most + PS_HEADER_BYTES);
}

static int64_t tenth_of(int64_t rate)
{
    return rate / 10 > 1 ? rate / 10 : 1;
}

/* Returns the bytes of the log that the messages of [from, to) take. */
static int64_t framed(const ps_sim_ledger_t *ledger, const ps_publication_t *pub, int64_t from,
                      int64_t to)
{
    int64_t bytes = 0;
    for (int64_t i = from; i < to; i++) {
        bytes += ps_sim_framed_bytes(pub, ledger->sizes[i]);
    }
    return bytes;
}

static void check_messages(ps_simworld_t *world, const ps_sim_ledger_t *ledger,
                           const ps_publication_t *pub)
{
    const int64_t rate = pub->params.rate_messages_per_s;
    const int64_t last = ledger->count - 1;
    const int64_t first = last - (rate + rate / 10 + 2);
    if (first >= ledger->lead_since &&
        ledger->times_ns[last] - ledger->times_ns[first] < SECOND_NS) {
        ps_sim_violate(world,
                       "session %d: %lld messages were accepted in %lld ns at %lld messages "
                       "a second",
                       ledger->session_id, (long long)(last - first + 1),
                       (long long)(ledger->times_ns[last] - ledger->times_ns[first]),
                       (long long)rate);
    }
    const int64_t ahead = ledger->count - (pub->sent_ordinal - pub->dropped_sent);
    if (pub->endpoint != NULL && ledger->lead_since == 0 && ahead > tenth_of(rate) + 1) {
        ps_sim_violate(world, "session %d: %lld messages ahead of the sender at %lld a second",
                       ledger->session_id, (long long)ahead, (long long)rate);
    }
}

static void check_bytes(ps_simworld_t *world, ps_sim_ledger_t *ledger, const ps_publication_t *pub,
                        int64_t start)
{
    const int64_t rate = pub->params.rate_bytes_per_s;
    const int64_t last = ledger->count - 1;
    ledger->second_bytes += framed(ledger, pub, last, last + 1);
    while (ledger->times_ns[last] - ledger->times_ns[ledger->second_from] >= SECOND_NS) {
        ledger->second_bytes -= framed(ledger, pub, ledger->second_from, ledger->second_from + 1);
        ledger->second_from++;
    }
    const int64_t before = ledger->second_bytes - framed(ledger, pub, last, last + 1);
    const int64_t longest = framed(ledger, pub, ledger->second_from, ledger->second_from + 1);
    if (before - longest > rate + rate / 10) {
        ps_sim_violate(world, "session %d: %lld bytes were accepted in a second at %lld",
                       ledger->session_id, (long long)ledger->second_bytes, (long long)rate);
        ledger->second_from = last;
        ledger->second_bytes = 0;
    }
    if (pub->endpoint != NULL && start >= pub->sender_position + tenth_of(rate)) {
        ps_sim_violate(world, "session %d: a message begins %lld bytes ahead of the sender at %lld",
                       ledger->session_id, (long long)(start - pub->sender_position),
                       (long long)rate);
    }
}

void ps_sim_lead_check(ps_simworld_t *world, const ps_sim_publisher_t *publisher,
                       const ps_publication_t *pub, int64_t start)
{
    ps_sim_ledger_t *ledger = &world->ledgers[publisher->params.ledger];
    const int64_t life = world->slots[publisher->params.host].lives;
    if (ledger->lead_life != life ||
        ledger->lead_id != pub->id) { /* the first, or a new daemon's: its rates begin again */
        ledger->lead_since = ledger->lead_life == 0 ? 0 : ledger->count - 1;
        ledger->second_from = ledger->count - 1;
        ledger->second_bytes = 0;
        ledger->lead_life = life;
        ledger->lead_id = pub->id;
    }
    if (pub->params.rate_messages_per_s > 0) {
        check_messages(world, ledger, pub);
    }
    if (pub->params.rate_bytes_per_s > 0) {
        check_bytes(world, ledger, pub, start);
    }
}
