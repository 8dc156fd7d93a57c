/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_admit.c: admission by ps-rate. Publishers are at most a tenth of a second of the
 * rate ahead of it. On the network they are at most that far ahead of the sender
 * (docs/decisions/0082).
 *
 *   bytes      bound the publisher limit: a message may begin below it.  What one message takes
 *              beyond is waited for in full.
 *   messages   bound an ordinal limit of its own, below which publishers take ordinals one by one
 *              (ps_spend.h).
 *
 * Both limits are absolute and rise with time. A refused publisher makes the sender check the
 * limits; a timer raises the limits for waiting publishers. */
#include "ps_sender.h"
#include "ps_spend.h"

enum { LEAD_PARTS = 10, STEP_PARTS = 1000 };

static int64_t lead_of(int64_t rate)
{
    return rate / LEAD_PARTS > 1 ? rate / LEAD_PARTS : 1;
}

static int64_t step_of(int64_t rate)
{
    return rate / STEP_PARTS > 1 ? rate / STEP_PARTS : 1;
}

static uint64_t spend_word(const ps_publication_t *pub)
{
    return atomic_load_explicit(&pub->slot->spend, memory_order_acquire);
}

void ps_publication_admit_init(ps_publication_t *pub)
{
    const int64_t bytes = pub->params.rate_bytes_per_s;
    const int64_t messages = pub->params.rate_messages_per_s;
    ps_allowance_init(&pub->byte_allowance, bytes, lead_of(bytes));
    ps_allowance_init(&pub->message_allowance, messages, lead_of(messages));
    pub->admit_due_ns = INT64_MAX;
    const int64_t leased = ps_spend_leased(pub->slot); /* before the word: ps_spend.h */
    const int64_t spent = ps_spent_near(spend_word(pub), 0);
    pub->spent = spent - leased;
    pub->spent_uncounted = pub->spent - pub->sent_ordinal;
    /* Release: a publisher that sees it finds the word.  Limit 0 until the first look. */
    atomic_store_explicit(&pub->slot->never_throttle, pub->params.never_throttle != 0,
                          memory_order_relaxed);
    if (!pub->credits.on) {
        atomic_store_explicit(&pub->slot->ordinal_limit, spent, memory_order_relaxed);
    }
    const uint32_t credits = pub->params.adopted
                                 ? atomic_load_explicit(&pub->slot->metered, memory_order_relaxed) &
                                       (PS_METERED_CREDITS | PS_METERED_LEASES)
                                 : 0;
    const uint32_t depth = pub->params.depth_messages > 0 ? PS_METERED_DEPTH : 0;
    atomic_store_explicit(&pub->slot->metered,
                          credits | depth | (messages > 0 ? PS_METERED_RATE : 0),
                          memory_order_release);
}

static void wait_until(ps_publication_t *pub, int64_t due_ns)
{
    pub->admit_due_ns = due_ns < pub->admit_due_ns ? due_ns : pub->admit_due_ns;
    ps_publication_due(pub, due_ns);
}

/* Messages admitted and not sent yet, as far as the sender can tell. Ordinals of a publisher that
 * died before it committed are never sent. When all data was sent and no ordinal was used for a
 * while, the difference is the number of such ordinals. It is no longer counted. The ordinals of a
 * lease were taken, too, but their publisher still uses them: they stay counted. */
static int64_t messages_ahead(ps_publication_t *pub, int64_t spent, int64_t leased)
{
    const int64_t sent = pub->sent_ordinal - pub->dropped_sent; /* a dropped one spent nothing */
    const int64_t unsent = spent - sent - pub->spent_uncounted;
    /* The tail as it is now: what was last read may be older than the word. */
    const int64_t used = spent - leased;
    if (used == pub->spent && pub->sender_position >= ps_log_producer_position(&pub->log)) {
        pub->spent_uncounted = used - sent;
        return leased;
    }
    return unsent > 0 ? unsent : 0;
}

static void admit_messages(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t rate = pub->params.rate_messages_per_s;
    const int64_t leased = ps_spend_leased(pub->slot); /* before the word: ps_spend.h */
    const int64_t spent = ps_spent_near(spend_word(pub), pub->spent);
    const int64_t used = spent - leased;
    /* The ordinals of a lease are not used yet. If the rate counted them, a publisher that was
     * silent would have the lease in addition to what the silence saved up. */
    const int64_t allowed = ps_allowance_room(&pub->message_allowance, used, now_ns);
    const int64_t left =
        pub->endpoint != NULL ? lead_of(rate) - messages_ahead(pub, spent, leased) : INT64_MAX;
    const int64_t room = allowed - leased < left ? allowed - leased : left;
    pub->spent = used;
    pub->messages_bind = allowed <= 0;
    pub->messages_lead_binds = allowed > 0 && left <= 0;
    if (allowed <= 0) {
        wait_until(pub, ps_allowance_ready_ns(&pub->message_allowance, used, step_of(rate)));
    }
    const int64_t admitted = ps_publication_admitted_ordinals(pub);
    const int64_t rated = room > 0 ? spent + room : spent;
    const int64_t limit = rated < admitted ? rated : admitted;
    const int64_t before = atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_relaxed);
    if (limit != before) {
        pub->limit_raised = pub->limit_raised || limit > before;
        /* release: as the publisher limit */
        atomic_store_explicit(&pub->slot->ordinal_limit, limit, memory_order_release);
    }
}

/* Counts the bytes that travel: of sent padding only the header. */
static int64_t bytes_limit(ps_publication_t *pub, int64_t want, int64_t now_ns)
{
    const int64_t rate = pub->params.rate_bytes_per_s;
    const bool network = pub->endpoint != NULL;
    const int64_t unsent = network ? pub->producer_position - pub->sender_position : 0;
    const int64_t taken = pub->producer_position - pub->padding_bytes;
    const int64_t allowed = ps_allowance_room(&pub->byte_allowance, taken, now_ns);
    const int64_t left = network ? lead_of(rate) - unsent : INT64_MAX;
    const int64_t room = allowed < left ? allowed : left;
    pub->bytes_bind = allowed <= 0;
    pub->bytes_lead_binds = allowed > 0 && room <= 0;
    if (allowed <= 0) {
        wait_until(pub, ps_allowance_ready_ns(&pub->byte_allowance, taken, step_of(rate)));
    }
    const int64_t most = pub->producer_position + room;
    return most < want ? most : want;
}

int64_t ps_publication_admit(ps_publication_t *pub, int64_t want, int64_t now_ns)
{
    pub->admit_due_ns = INT64_MAX;
    if (pub->message_allowance.rate > 0) {
        admit_messages(pub, now_ns);
    }
    return pub->byte_allowance.rate > 0 ? bytes_limit(pub, want, now_ns) : want;
}

int64_t ps_publication_admitted_ordinals(const ps_publication_t *pub)
{
    const int64_t credited = ps_publication_credit_ordinals(pub);
    const int64_t depth = pub->message_depth.limit;
    return depth < credited ? depth : credited;
}

bool ps_publication_admits_no_message(const ps_publication_t *pub)
{
    const bool binds = pub->messages_bind || pub->messages_lead_binds || pub->message_depth.binds;
    return (binds && pub->credits.leased == 0) || pub->credits.binds;
}
