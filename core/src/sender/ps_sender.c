/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sender.c: the sender agent: its duty cycle and its timers.
 */
#include "ps_sender.h"

#include "ps_barrier.h"
#include "ps_inline.h"

#include <stddef.h>
#include <stdlib.h>

#define POLL_GAP_NS INT64_C(10000)
#define RATE_NS     INT64_C(1000000) /* of sending, for a measured rate */

/* ---- duty cycle ------------------------------------------------------------------------------ */

/* Takes the dirty bits of a word. Each slot's flag is cleared before its log is checked, so a
 * commit after the check sets it again. */
static inline int32_t collect_word(ps_sender_t *sender, int32_t word)
{
    int32_t found = 0;
    _Atomic uint64_t *bits = &sender->shared->dirty[word];
    if (atomic_load_explicit(bits, memory_order_relaxed) == 0) {
        return 0;
    }
    uint64_t set = atomic_exchange_explicit(bits, 0, memory_order_seq_cst);
    while (set != 0) {
        const int32_t slot = word * 64 + __builtin_ctzll(set);
        set &= set - 1;
        const uint32_t why = atomic_exchange_explicit(&sender->shared->publications[slot].dirty,
                                                      PS_DIRTY_NOT, memory_order_seq_cst);
        ps_publication_t *pub = sender->by_slot[slot];
        if (pub != NULL) {
            ps_sender_note_dirty(sender, pub);
            found++;
            ps_sender_ready(sender, pub);
            ps_sender_watch(sender, pub);
            if (why != PS_DIRTY_CHECK) {
                ps_publication_wake_subscribers(pub);
            }
        }
    }
    return found;
}

/* Takes the dirty bits of the words whose bit is set. */
static PS_NOINLINE int32_t collect_marked(ps_sender_t *sender, int32_t words)
{
    int32_t found = 0;
    for (int32_t i = 0; i * 64 < words; i++) {
        _Atomic uint64_t *summary = &sender->shared->driver->dirty_words[i];
        if (atomic_load_explicit(summary, memory_order_relaxed) == 0) {
            continue;
        }
        uint64_t set = atomic_exchange_explicit(summary, 0, memory_order_seq_cst);
        while (set != 0) {
            const int32_t word = i * 64 + __builtin_ctzll(set);
            set &= set - 1;
            found += word < words ? collect_word(sender, word) : 0;
        }
    }
    return found;
}

/* Takes the dirty bits. The number of slots is a multiple of 64. To read a few words costs less
 * than to find those with bits. */
static int32_t collect_dirty(ps_sender_t *sender)
{
    const int32_t words = sender->capacity / 64;
    int32_t found = 0;
    if (sender->capacity > PS_DIRTY_FEW && !sender->sweeps) {
        found = collect_marked(sender, words);
    } else {
        sender->sweeps = false;
        for (int32_t word = 0; word < words; word++) {
            found += collect_word(sender, word);
        }
    }
    if (found > 0) {
        atomic_thread_fence(memory_order_seq_cst); /* flags before logs */
    }
    return found;
}

static void ready_since(ps_sender_t *sender, ps_publication_t *pub, int64_t since_ns)
{
    ps_sender_ready(sender, pub);
    pub->turn.since_ns = since_ns;
}

/* Lets the publication wait for a further turn. In a slow cycle it waits for the next cycle, so
 * that it does not take the turn of another publication. */
static void wait_again(ps_sender_t *sender, const ps_sender_again_t *again)
{
    if (sender->slow) {
        sender->again[sender->again_count++] = *again;
    } else if (again->repair) {
        ps_sender_ready_repair(sender, again->pub);
    } else {
        ready_since(sender, again->pub, again->since_ns);
    }
}

static int64_t run_repair(ps_sender_t *sender, ps_band_entry_t *entry)
{
    uint8_t *at = (uint8_t *)entry - offsetof(ps_publication_t, resend);
    ps_publication_t *pub = (ps_publication_t *)(void *)at;
    bool more = false;
    const int64_t bytes = ps_publication_repair_turn(pub, sender->now_ns, &more);
    if (more) {
        wait_again(sender, &(ps_sender_again_t){ .pub = pub, .repair = true });
    }
    return bytes;
}

/* Only this thread writes these fields. */
static void count_wait(const ps_publication_t *pub, int64_t wait_ns)
{
    ps_publication_slot_t *slot = pub->slot;
    const int64_t waits = atomic_load_explicit(&slot->waits, memory_order_relaxed);
    const int64_t waited_ns = atomic_load_explicit(&slot->waited_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->waits, waits + 1, memory_order_relaxed);
    atomic_store_explicit(&slot->waited_ns, waited_ns + wait_ns, memory_order_relaxed);
}

/* One turn of the publication whose turn it is. Returns the bytes sent; -1: none waits. *further:
 * the publication left data that it can send. */
static int64_t run_turn(ps_sender_t *sender, bool *further)
{
    ps_bands_t *bands = &sender->bands;
    ps_band_entry_t *entry = ps_bands_pick(bands);
    int64_t bytes = 0;
    if (entry == NULL) {
        return -1;
    }
    const int32_t list = entry->list;
    const int64_t wait_ns = sender->now_ns - entry->since_ns;
    if (bands->alone == 0) {
        ps_governor_waited(&sender->governor, wait_ns);
    }
    sender->turn_bytes = bands->alone > 0 ? bands->lone_turn : bands->quantum;
    if (list == PS_BAND_REPAIR) {
        bytes = run_repair(sender, entry);
    } else {
        uint8_t *at = (uint8_t *)entry - offsetof(ps_publication_t, turn);
        ps_publication_t *pub = (ps_publication_t *)(void *)at;
        bool more = false;
        if (bands->alone == 0) {
            count_wait(pub, wait_ns);
        }
        bytes = ps_publication_turn(pub, sender->now_ns, &more);
        sender->awaits_window = sender->awaits_window || pub->window_shut;
        sender->awaits_credit =
            sender->awaits_credit ||
            (pub->credits.binds && pub->sender_position >= pub->producer_position);
        if (more) {
            /* not served: it ages */
            const int64_t since_ns = bytes > 0 ? sender->now_ns : entry->since_ns;
            wait_again(sender, &(ps_sender_again_t){ .pub = pub, .since_ns = since_ns });
            *further = bytes > 0;
        }
    }
    ps_bands_charge(bands, list, bytes);
    return bytes;
}

/* Measures the rate of the sender while it sends, for the quantum. Cycles that follow each other
 * count; the time asleep does not. */
static void measure_rate(ps_sender_t *sender, int64_t bytes)
{
    if (sender->bands.alone > 0) { /* its turn has no quantum */
        sender->busy_since_ns = -1;
        return;
    }
    if (sender->params->governor != 0) {
        ps_sender_due(sender, sender->governor.sampled_ns + PS_GOVERNOR_SAMPLE_NS);
    }
    if (sender->busy_since_ns >= 0 && bytes > 0) {
        sender->busy_ns += sender->now_ns - sender->busy_since_ns;
        sender->busy_bytes += bytes;
        if (sender->busy_ns >= RATE_NS) {
            ps_bands_set_quantum(
                &sender->bands,
                (int64_t)((double)sender->busy_bytes * 1e9 / (double)sender->busy_ns),
                sender->largest_datagram);
            sender->busy_ns = 0;
            sender->busy_bytes = 0;
        }
    }
    sender->busy_since_ns = bytes > 0 ? sender->now_ns : -1;
}

/* Checks publications with readers that are behind, because local readers do not notify the
 * sender. */
static int32_t run_watched(ps_sender_t *sender)
{
    int32_t moved = 0;
    for (ps_publication_t *pub = sender->watch_head, *next; pub != NULL; pub = next) {
        next = pub->next_watch;
        const int64_t slowest = pub->slowest_position;
        if (ps_publication_update(pub, pub->turn.queued, sender->now_ns)) {
            ps_sender_ready(sender, pub);
        }
        moved += pub->slowest_position != slowest;
        if (pub->gating_count == 0 || pub->slowest_position >= pub->producer_position) {
            ps_sender_leave_watch(sender, pub);
        }
    }
    return moved;
}

/* A cycle ends after a quantum, so that a publication that becomes ready waits for at most two
 * before the sender sees it. It also ends after a turn that left data, so that no publication
 * sends twice at one time of the clock: its index has one entry for a time.
 * If the thread seldom runs, a round of such cycles takes long: each publication then has
 * one turn a cycle, in the order of the bands, without regard to their weights. The time of the
 * cycle itself does not count: the many turns of a slow cycle would make the next cycle slow. */
static int64_t run_ready(ps_sender_t *sender, int32_t *turns_done)
{
    const int32_t waiting = sender->bands.waiting;
    int64_t bytes = 0;
    bool further = false;
    if (waiting == 0) {
        sender->busy_since_ns = -1;
        sender->idle_since_ns = sender->idle_since_ns < 0 ? sender->now_ns : sender->idle_since_ns;
        return 0;
    }
    if (sender->idle_since_ns >= 0) {
        sender->idle_ns += sender->now_ns - sender->idle_since_ns;
        sender->idle_since_ns = -1;
    }
    for (int32_t left = waiting < PS_TURNS_PER_CYCLE ? waiting : PS_TURNS_PER_CYCLE;
         left > 0 && (sender->slow || (bytes < sender->bands.quantum && !further)); left--) {
        const int64_t sent = run_turn(sender, &further);
        if (sent < 0) {
            break;
        }
        bytes += sent;
        (*turns_done)++;
    }
    sender->slow = false;
    for (int32_t i = 0; i < sender->again_count; i++) {
        wait_again(sender, &sender->again[i]);
    }
    sender->again_count = 0;
    ps_bands_age(&sender->bands, sender->now_ns);
    measure_rate(sender, bytes);
    return bytes;
}

static bool poll_is_due(const ps_sender_t *sender, int64_t bytes)
{
    if (bytes == 0) { /* a poll costs a system call for each socket */
        return sender->awaits_window || sender->now_ns - sender->polled_ns >= sender->poll_gap_ns;
    }
    return sender->cycles_since_poll >= PS_POLL_RATIO ||
           sender->bytes_since_poll >= PS_POLL_BYTES ||
           sender->now_ns - sender->polled_ns >= sender->params->status_message_timeout_ns / 2;
}

/* Polls the endpoints that sent since the last poll, and a slice of the others. */
static int32_t poll_endpoints(ps_sender_t *sender)
{
    int32_t seen = 0;
    for (ps_send_endpoint_t *endpoint = sender->endpoints; endpoint != NULL;
         endpoint = endpoint->next) {
        if (endpoint->poll_now) {
            seen += ps_send_endpoint_poll(endpoint, ps_sender_on_datagram, sender->now_ns);
        }
    }
    for (int32_t i = 0; i < PS_POLL_SLICE && i < sender->endpoint_count; i++) {
        if (sender->poll_cursor == NULL) {
            sender->poll_cursor = sender->endpoints;
        }
        seen += ps_send_endpoint_poll(sender->poll_cursor, ps_sender_on_datagram, sender->now_ns);
        sender->poll_cursor = sender->poll_cursor->next;
    }
    sender->awaits_window = sender->awaits_window && seen == 0;
    sender->awaits_credit = sender->awaits_credit && seen == 0;
    sender->cycles_since_poll = 0;
    sender->bytes_since_poll = 0;
    sender->polled_ns = sender->now_ns;
    return seen;
}

static void scan_endpoints(ps_sender_t *sender)
{
    for (ps_send_endpoint_t *endpoint = sender->endpoints; endpoint != NULL;
         endpoint = endpoint->next) {
        if (endpoint->full) {
            ps_sender_resume_held(sender, endpoint);
        }
        if (endpoint->due_ns <= sender->now_ns) {
            endpoint->due_ns = ps_send_endpoint_on_timer(endpoint, sender->now_ns);
        }
        ps_sender_due(sender, endpoint->due_ns);
    }
}

/* Runs the due timers of a block, and notes when the next of them is due. */
static inline void run_block(ps_sender_t *sender, int32_t from, int32_t to)
{
    int64_t *block_ns = &sender->block_due_ns[from / PS_SCAN_BLOCK];
    int64_t first_ns = INT64_MAX;
    *block_ns = INT64_MAX; /* a timer that sets another one of the block lowers it again */
    for (int32_t i = from; i < to; i++) {
        if (sender->due_ns[i] <= sender->now_ns) {
            ps_publication_on_timer(sender->publications[i], sender->now_ns);
        }
        first_ns = sender->due_ns[i] < first_ns ? sender->due_ns[i] : first_ns;
    }
    *block_ns = first_ns < *block_ns ? first_ns : *block_ns;
}

/* Visits the blocks from scan_index on, and of these at most PS_SCAN_SLICE publications. */
static void run_slice(ps_sender_t *sender)
{
    const int32_t count = sender->publication_count;
    for (int32_t seen = 0; sender->scan_index < count && seen < PS_SCAN_SLICE;) {
        const int32_t from = sender->scan_index;
        const int32_t to = count - from < PS_SCAN_BLOCK ? count : from + PS_SCAN_BLOCK;
        const int64_t *block_ns = &sender->block_due_ns[from / PS_SCAN_BLOCK];
        if (*block_ns <= sender->now_ns) {
            run_block(sender, from, to);
            seen += PS_SCAN_BLOCK;
        }
        sender->scan_min_ns = *block_ns < sender->scan_min_ns ? *block_ns : sender->scan_min_ns;
        sender->scan_index = from + PS_SCAN_BLOCK;
    }
}

/* Returns true if a pass over the publications runs or is due. */
static inline bool timers_are_due(const ps_sender_t *sender)
{
    return sender->scan_index >= 0 ||
           (sender->now_ns >= sender->min_due_ns &&
            (sender->urgent || sender->now_ns - sender->scan_started_ns >= PS_TICK_NS));
}

/* One slice of the pass over all publications; the pass ends with the exact next due time. */
static PS_NOINLINE void run_timers(ps_sender_t *sender)
{
    const int64_t now_ns = sender->now_ns;
    if (sender->scan_index < 0) {
        sender->urgent = false;
        sender->sweeps = true;
        sender->scan_started_ns = now_ns;
        sender->scan_min_ns = INT64_MAX;
        sender->scan_index = 0;
        scan_endpoints(sender);
        ps_sender_govern(sender);
    }
    run_slice(sender);
    for (ps_send_endpoint_t *endpoint = sender->endpoints; endpoint != NULL;
         endpoint = endpoint->next) {
        ps_send_endpoint_flush(endpoint, now_ns);
    }
    if (sender->scan_index >= sender->publication_count) {
        sender->min_due_ns = sender->scan_min_ns;
        sender->scan_min_ns = INT64_MAX;
        sender->scan_index = -1;
    }
}

int32_t ps_sender_do_work(ps_sender_t *sender, int64_t now_ns)
{
    int32_t work = 0;
    sender->slow = sender->bands.waiting > 0 && now_ns - sender->ended_ns >= PS_SLOW_CYCLE_NS;
    if (sender->bands.waiting > 0 && now_ns - sender->cycle_ns >= PS_SLOW_CYCLE_NS) {
        sender->delayed_ns = now_ns;
    }
    sender->cycle_ns = now_ns;
    sender->ended_ns = now_ns;
    sender->now_ns = now_ns > sender->now_ns ? now_ns : sender->now_ns;
    if (sender->released_publications != NULL || sender->released_endpoints != NULL) {
        ps_sender_emit_released(sender);
    }
    if (sender->capacity > 0) {
        work += collect_dirty(sender);
        work += ps_sender_check_hot(sender);
    }
    if (timers_are_due(sender)) {
        run_timers(sender); /* before the turns: a timer may make one ready */
    }
    /* Before the turns: a publisher that has the answer to its message then also has the credit. */
    const bool early = sender->awaits_credit;
    if (early) {
        work += poll_endpoints(sender);
    }
    int32_t turns = 0;
    const int64_t bytes = run_ready(sender, &turns);
    sender->cycles_since_poll++;
    sender->bytes_since_poll += bytes;
    work += bytes > 0 ? turns : 0;
    if (!early && poll_is_due(sender, bytes)) {
        work += poll_endpoints(sender);
    }
    work += run_watched(sender);
    return work;
}

void ps_sender_end_cycle(ps_sender_t *sender, int64_t end_ns)
{
    sender->ended_ns = end_ns;
}

int64_t ps_sender_next_deadline_ns(ps_sender_t *sender, int64_t now_ns)
{
    if (sender->bands.waiting > 0 || sender->scan_index >= 0) {
        return now_ns;
    }
    int64_t due_ns = sender->min_due_ns;
    if (sender->released_publications != NULL || sender->released_endpoints != NULL) {
        due_ns = now_ns; /* the conductor's ring was full */
    }
    const int64_t tick_ns = sender->scan_started_ns + PS_TICK_NS;
    return due_ns < tick_ns && !sender->urgent ? tick_ns : due_ns;
}

bool ps_sender_is_paused(const ps_sender_t *sender)
{
    return sender->paused_count > 0;
}

bool ps_sender_has_work(ps_sender_t *sender)
{
    if (sender->bands.waiting > 0) {
        return true;
    }
    for (int32_t word = 0; word * 64 < sender->capacity; word++) {
        if (atomic_load_explicit(&sender->shared->dirty[word], memory_order_acquire) != 0) {
            sender->sweeps = true;
            return true;
        }
    }
    for (const ps_publication_t *pub = sender->watch_head; pub != NULL; pub = pub->next_watch) {
        if (ps_publication_wants_sender(pub)) {
            return true;
        }
    }
    return false;
}

/* ---- life ------------------------------------------------------------------------------------ */

void ps_publication_free(ps_publication_t *pub)
{
    ps_log_unmap(&pub->log);
    ps_fc_free(&pub->fc);
    free(pub->receivers);
    ps_map_fini(&pub->receiver_index);
    free(pub->snapshot);
    free(pub->retransmit.actions);
    free(pub);
}

int ps_sender_create(const ps_context_t *context, ps_agent_t *agent, ps_sender_t **out)
{
    ps_sender_t *sender = calloc(1, sizeof(*sender));
    if (sender == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for the sender");
    }
    sender->context = context;
    sender->agent = agent;
    sender->params = &context->params;
    sender->shared = context->params.shared;
    sender->capacity = sender->shared != NULL ? sender->shared->n_publications : 0;
    const size_t slots = sender->capacity > 0 ? (size_t)sender->capacity : 1;
    uint32_t buckets = 16;
    while (buckets < slots * 2) {
        buckets *= 2;
    }
    sender->bucket_mask = buckets - 1;
    sender->by_slot = calloc(slots, sizeof(*sender->by_slot));
    sender->publications = calloc(slots, sizeof(*sender->publications));
    sender->due_ns = calloc(slots, sizeof(*sender->due_ns));
    sender->block_due_ns = calloc(slots / PS_SCAN_BLOCK + 1, sizeof(*sender->block_due_ns));
    sender->buckets = calloc(buckets, sizeof(*sender->buckets));
    ps_bands_init(&sender->bands);
    ps_governor_init(&sender->governor);
    sender->busy_since_ns = -1;
    sender->idle_since_ns = -1;
    sender->scan_index = -1;
    sender->scan_started_ns = INT64_MIN / 2;
    sender->polled_ns = INT64_MIN / 2;
    sender->delayed_ns = INT64_MIN / 2;
    sender->min_due_ns = INT64_MAX;
    sender->scan_min_ns = INT64_MAX;
    /* In the simulator everything is one thread, and every run must be the same. */
    sender->poll_gap_ns = sender->params->threading == PS_INVOKER ? 0 : POLL_GAP_NS;
    sender->barriers = sender->params->threading != PS_INVOKER && ps_barrier_available();
    if (sender->by_slot == NULL || sender->publications == NULL || sender->due_ns == NULL ||
        sender->block_due_ns == NULL || sender->buckets == NULL) {
        ps_sender_destroy(sender);
        return ps_fail(PS_E_NO_MEMORY, "no memory for %zu publications", slots);
    }
    *out = sender;
    return PS_OK;
}

void ps_sender_destroy(ps_sender_t *sender)
{
    if (sender == NULL) {
        return;
    }
    for (int32_t i = 0; i < sender->publication_count; i++) {
        ps_publication_free(sender->publications[i]);
    }
    while (sender->released_publications != NULL) {
        ps_publication_t *next = sender->released_publications->next_released;
        ps_publication_free(sender->released_publications);
        sender->released_publications = next;
    }
    while (sender->endpoints != NULL) {
        ps_send_endpoint_t *next = sender->endpoints->next;
        ps_send_endpoint_free(sender->endpoints);
        sender->endpoints = next;
    }
    while (sender->released_endpoints != NULL) {
        ps_send_endpoint_t *next = sender->released_endpoints->next;
        ps_send_endpoint_free(sender->released_endpoints);
        sender->released_endpoints = next;
    }
    free(sender->by_slot);
    free(sender->publications);
    free(sender->due_ns);
    free(sender->block_due_ns);
    free(sender->buckets);
    free(sender);
}
