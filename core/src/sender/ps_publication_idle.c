/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_idle.c: the terms that an idle publication can release (docs/decisions/0033). The
 * sender releases a term by never using it again. It keeps terms below a limit that a publisher may
 * have read, terms that may be retransmitted, and terms that a reader may read. The conductor frees
 * the released terms after the event. */
#include "ps_sender.h"
#include "ps_assert.h"

/* Returns the position below which no data is retransmitted or read. */
static int64_t lowest_in_use(const ps_publication_t *pub)
{
    int64_t lowest =
        pub->endpoint != NULL ? ps_publication_resend_floor(pub) : pub->consumer_position;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        int64_t position = pub->subscribers[i].position;
        if (pub->subscribers[i].isolation.lagged && position < pub->clean_position) {
            position = pub->clean_position; /* it skips what lies below */
        }
        lowest = position < lowest ? position : lowest;
    }
    /* Keep padding over an unclaimed range whose owner may still try to claim it. The PAD refuses
     * the claim, and must stay as long as in an active stream. */
    if (pub->unblocked_bytes > 0 &&
        pub->unblocked_at + ps_publication_term(pub) > pub->producer_position) {
        lowest = pub->unblocked_at < lowest ? pub->unblocked_at : lowest;
    }
    return lowest > pub->kept_position ? lowest : pub->kept_position;
}

/* Storage is needed below: no limit that a publisher was ever given lies higher than a window
 * beyond the producer position, as consumers are never ahead of that. */
static int64_t highest_in_use(const ps_publication_t *pub, int32_t least_terms)
{
    const int64_t term = ps_publication_term(pub);
    int64_t highest = pub->producer_position + pub->window_bytes;
    highest = highest > pub->publisher_limit ? highest : pub->publisher_limit;
    const int64_t to = (highest + term - 1) & ~(int64_t)pub->log.term_mask;
    const int64_t least = ((pub->producer_position >> pub->log.shift) + least_terms) * term;
    /* Terms without memory are no reason to keep the terms below. */
    const int64_t whole = pub->reserved_position & ~(int64_t)pub->log.term_mask;
    const int64_t more = least < whole ? least : whole;
    return to > more ? to : more;
}

void ps_publication_on_release_terms(ps_publication_t *pub, int32_t least_terms)
{
    pub->term_needed_for = 0;
    pub->pending = (pub->pending & ~(uint32_t)PS_PEND_TERM) | PS_PEND_TERMS_RELEASED;
    pub->released_to = -1;
    if (pub->state != PS_PUBLICATION_ACTIVE || pub->revoked || pub->corrupt ||
        pub->quarantine_count > 0) {
        return;
    }
    const int64_t producer = ps_log_producer_position(&pub->log);
    if (producer != pub->producer_position) {
        return; /* it does not rest */
    }
    (void)ps_publication_read_subscribers(pub);
    ps_publication_clean_behind(pub); /* else only a limit that rises does that */
    const int64_t from = lowest_in_use(pub) & ~(int64_t)pub->log.term_mask;
    const int64_t to = highest_in_use(pub, least_terms);
    /* The remaining terms ahead must be zeroed; released terms read as zeroes. */
    if (to > pub->reserved_position || to - from >= PS_PARTITIONS * ps_publication_term(pub) ||
        pub->clean_position < to - PS_PARTITIONS * ps_publication_term(pub)) {
        return;
    }
    pub->clean_position = from > pub->clean_position ? from : pub->clean_position;
    pub->reserved_position = to;
    pub->kept_position = from;
    PS_ASSERT(from < to && ((from | to) & pub->log.term_mask) == 0);
    pub->released_to = to;
    pub->rests_at = producer;
}
