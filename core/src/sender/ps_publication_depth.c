/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_depth.c: a depth in messages (ps-depth=…msg; docs/decisions/0360). Publishers take
 * an ordinal for each message, as under a message rate. The sender states the ordinal up to which
 * they may publish: the messages that have left the log + the depth. To count the messages that
 * have left, the sender follows the slowest consumer through the frames of the log.
 */
#include "ps_set_up.h"

#include "ps_sender.h"
#include "ps_spend.h"

/* WALK_FRAMES: in one turn. AHEAD_FRAMES: once, when the count begins within a filled log. */
enum { WALK_FRAMES = 4096, AHEAD_FRAMES = 65536 };

static int64_t consumer_of(const ps_publication_t *pub)
{
    return pub->producer_position - pub->depth;
}

/* Counts the messages of [*position, to), and moves the position behind them. Stops at an open
 * claim, and where no frame is. */
static int64_t count(const ps_publication_t *pub, int64_t *position, int64_t to, int32_t most)
{
    int64_t messages = 0;
    for (int32_t i = 0; i < most && *position < to; i++) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, *position);
        const int32_t span = ps_publication_checked_span(pub, frame, ps_frame_length_acquire(frame),
                                                         (int32_t)(*position & pub->log.term_mask));
        if (span < 0) {
            break;
        }
        messages += frame->type == PS_TYPE_DATA ? ps_frame_messages(frame) : 0;
        *position += span;
    }
    return messages;
}

void ps_publication_depth_init(ps_publication_t *pub)
{
    const ps_publication_params_t *params = &pub->params;
    ps_publication_depth_t *depth = &pub->message_depth;
    const int64_t low = params->low_watermark_messages;
    *depth = (ps_publication_depth_t){ .limit = INT64_MAX };
    if (params->depth_messages <= 0) {
        return;
    }
    depth->low = low > 0 && low <= params->depth_messages ? low : params->depth_messages / 2;
    depth->limit = ps_spent_near(atomic_load_explicit(&pub->slot->spend, memory_order_relaxed), 0);
    depth->position = -1; /* the count begins at the first look */
    depth->used = depth->limit - ps_spend_leased(pub->slot);
}

/* Begins the count at the slowest consumer: what the log has behind it is ahead. */
static void begin(ps_publication_t *pub, int64_t used)
{
    ps_publication_depth_t *depth = &pub->message_depth;
    int64_t position = consumer_of(pub);
    depth->position = position;
    depth->left = used - count(pub, &position, pub->producer_position, AHEAD_FRAMES);
}

/* Follows the slowest consumer. A reader may also return to those that are waited for, behind the
 * position that was counted. */
static void follow(ps_publication_t *pub, int64_t used)
{
    ps_publication_depth_t *depth = &pub->message_depth;
    const int64_t to = consumer_of(pub);
    if (depth->position < pub->clean_position || depth->position < 0) {
        begin(pub, used);
    } else if (to < depth->position) {
        int64_t position = to;
        depth->left -= count(pub, &position, depth->position, AHEAD_FRAMES);
        depth->position = to;
    } else {
        const int64_t from = depth->position;
        depth->left += count(pub, &depth->position, to, WALK_FRAMES);
        if (depth->position == from && from < to) { /* the frames are gone */
            begin(pub, used);
        }
    }
}

bool ps_publication_depth_look(ps_publication_t *pub)
{
    ps_publication_depth_t *depth = &pub->message_depth;
    const int64_t leased = ps_spend_leased(pub->slot); /* before the word: ps_spend.h */
    const int64_t spent =
        ps_spent_near(atomic_load_explicit(&pub->slot->spend, memory_order_acquire), depth->used);
    const int64_t used = spent - leased;
    follow(pub, used);
    const bool followed = depth->position >= consumer_of(pub);
    /* Ordinals of publishers that died are never in the log. Publishers that take one now see that
     * it is counted at their next message. */
    if (followed && used == depth->used && depth->position >= ps_log_producer_position(&pub->log)) {
        depth->left = used;
    }
    depth->used = used;
    depth->ahead = used > depth->left ? used - depth->left : 0;
    depth->binds = used >= depth->limit;
    if (!followed) {
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
    return depth->ahead > depth->low;
}

/* Returns true if only ordinals that are not in the log hold the publishers. Their publisher
 * commits at once, or it died; only a second look can tell. Publishers that wait, or that drop
 * messages, do not notify the sender. */
static bool waits_for_ordinals(const ps_publication_t *pub)
{
    const ps_publication_depth_t *depth = &pub->message_depth;
    return depth->binds && depth->left < depth->used &&
           depth->position >= ps_log_producer_position(&pub->log);
}

static void look_later(ps_publication_t *pub)
{
    const int64_t due_ns = ps_publication_sender(pub)->now_ns + PS_TICK_NS;
    pub->admit_due_ns = due_ns < pub->admit_due_ns ? due_ns : pub->admit_due_ns;
    ps_publication_due(pub, due_ns);
}

void ps_publication_depth_open(ps_publication_t *pub, bool paused)
{
    ps_publication_depth_t *depth = &pub->message_depth;
    if (!paused) {
        depth->limit = depth->left + pub->params.depth_messages;
    }
    depth->binds = depth->used >= depth->limit;
    if (waits_for_ordinals(pub)) {
        look_later(pub);
    }
    if (pub->message_allowance.rate > 0) {
        return; /* ps_publication_admit stores the lowest limit */
    }
    const int64_t limit = ps_publication_admitted_ordinals(pub);
    const int64_t before = atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_relaxed);
    if (limit != before) {
        pub->limit_raised = pub->limit_raised || limit > before;
        /* Release: as the publisher limit. */
        atomic_store_explicit(&pub->slot->ordinal_limit, limit, memory_order_release);
    }
}
