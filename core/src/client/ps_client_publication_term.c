/* SPDX-License-Identifier: Apache-2.0
 * ps_client_publication_term.c: a publisher at the end of a term (docs/spec/log-buffer.md). */
#include "ps_client_publication.h"

/* Pads [offset, T) after this thread's reservation passed the end of the term. */
static void ps_pub_pad_rest(const ps_pub_t *pub, int32_t term_count, int32_t offset)
{
    const ps_log_t *log = &pub->log;
    const int32_t length = log->term_length - offset;
    const int64_t position = ((int64_t)term_count << log->shift) + offset;
    uint8_t *at = ps_log_at(log, position);
    if (ps_pub_claim(pub, at, length)) {
        /* Clear the reserved value: data of an earlier lap could look like a mark for dropped
         * messages. */
        ps_frame_reserved(ps_frame_at(log, position), 0);
        /* Failure: the unblocker padded it already, with the same effect. */
        ps_log_pad(log, position, length, ps_pub_claim_word(pub, length));
    }
}

/* The last term is used up.  Unlike ADMIN_ACTION this code ends the call, so the sender must learn
 * of the padding here. */
static int64_t ps_pub_end_of_stream(const ps_pub_t *pub, bool padded)
{
    if (padded) {
        ps_pub_dirty(pub);
    }
    return PS_MAX_POSITION_EXCEEDED;
}

int64_t ps_pub_end_of_term(ps_pub_t *pub, int32_t term_count, int32_t term_id, uint32_t offset)
{
    const ps_log_t *log = &pub->log;
    const bool padded = offset < (uint32_t)log->term_length;
    if (padded) {
        ps_pub_pad_rest(pub, term_count, (int32_t)offset);
    }
    if (term_count == INT32_MAX) {
        return ps_pub_end_of_stream(pub, padded);
    }
    ps_log_rotate(log, term_count, term_id);
    return PS_ADMIN_ACTION;
}

int64_t ps_pub_exclusive_end_of_term(ps_pub_t *pub)
{
    const ps_log_t *log = &pub->log;
    ps_log_meta_t *meta = log->meta;
    const int32_t count = pub->term_count;
    ps_pub_seal(pub, log->term_length);
    atomic_store_explicit(&meta->tail[count % PS_PARTITIONS],
                          ps_pub_tail_word(pub->term_id, log->term_length), memory_order_release);
    const bool padded = pub->term_offset < log->term_length;
    if (padded) {
        ps_pub_pad_rest(pub, count, pub->term_offset);
        pub->term_offset = log->term_length;
    }
    if (count == INT32_MAX) {
        return ps_pub_end_of_stream(pub, padded);
    }
    pub->term_count = count + 1;
    pub->term_id = ps_wrap_add(pub->term_id, 1);
    pub->term_offset = 0;
    pub->zeroed_to = 0;
    atomic_store_explicit(&meta->tail[pub->term_count % PS_PARTITIONS],
                          ps_pub_tail_word(pub->term_id, 0), memory_order_release);
    atomic_store_explicit(&meta->active_term_count, pub->term_count, memory_order_release);
    return PS_ADMIN_ACTION;
}
