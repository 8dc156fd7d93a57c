/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_idle.c: what a publication that rests can do without (docs/decisions/0033).  The
 * sender gives up terms by never touching them again, and only those that nobody else may touch
 * either: no limit is taken back that a publisher may hold, nothing that may be requested again, no
 * reader's place.  The conductor frees them when it has heard of it.
 */
#include "ps_sender.h"
#include "ps_assert.h"

/* What lies below is nobody's: not to be sent again, not to be read. */
static int64_t lowest_in_use(const ps_publication_t *pub)
{
    int64_t lowest =
        pub->endpoint != NULL ? ps_publication_resend_floor(pub) : pub->consumer_position;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const int64_t position = pub->subscribers[i].position;
        lowest = position < lowest ? position : lowest;
    }
    /* A hole was padded over whose owner may still try to claim it: refused as long as the PAD is
     * there, and that is to be as long as in a stream that goes on. */
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
    /* Terms that are not there yet are no reason to keep those below. */
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
    /* Of the terms that stay, those ahead must be clean: the ones that go leave zeroes. */
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
