/* SPDX-License-Identifier: Apache-2.0
 *
 * many.h: many streams of one sender in virtual time, on the rig's endpoint.
 */
#ifndef MANY_H
#define MANY_H

#include "ps_priority.h"
#include "ps_publication.h"
#include "ps_sender.h"
#include "sender_rig.h"

enum { TERM = 1 << 20, FRAME = 1408, STREAMS = 200, QUANTUM = 4 * FRAME, PUBLICATIONS = 512 };
#define US INT64_C(1000)

typedef struct many {
    rig_t *rig;
    ps_publication_t *pubs[STREAMS];
    ps_log_t logs[STREAMS];
    int32_t count;
} many_t;

static inline ps_sender_t *sender(const many_t *many)
{
    return many->rig->driver->sender;
}

static inline many_t *open_many(void)
{
    many_t *many = calloc(1, sizeof(*many));
    CHECK(many != NULL);
    many->rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .publications = PUBLICATIONS });
    rig_step(many->rig, 0);
    return many;
}

static inline void close_many(many_t *many)
{
    for (int32_t i = 0; i < many->count; i++) {
        ps_log_unmap(&many->logs[i]);
    }
    rig_close(many->rig);
    free(many);
}

/* One stream more, of a priority. It has no data. */
static inline ps_publication_t *add_stream(many_t *many, int32_t priority)
{
    rig_t *rig = many->rig;
    const int32_t id = 1000 + many->count;
    char path[128];
    snprintf(path, sizeof(path), "%s/%d.log", rig->directory, (int)id);
    const ps_log_params_t log = { .path = path,
                                  .correlation_id = id,
                                  .session_id = id,
                                  .stream_id = 1,
                                  .term_length = TERM,
                                  .mtu = FRAME,
                                  .page_size = 4096,
                                  .sparse = 1,
                                  .file_mode = 0600,
                                  .type = PS_LOG_CONCURRENT,
                                  .reserve_terms = 0 };
    CHECK_EQ(ps_log_create(&log), PS_OK);
    CHECK_EQ(ps_log_map(path, 0, &many->logs[many->count]), PS_OK);
    const int32_t slot = ps_slot_allocate(rig->shared, PS_SLOT_PUBLICATION, id);
    ps_publication_params_t params = rig_publication_params(rig, id, path, slot);
    params.priority = priority;
    ps_publication_t *pub = NULL;
    CHECK_EQ(ps_publication_add(rig->driver, &params, &pub), PS_OK);
    many->pubs[many->count++] = pub;
    return pub;
}

static inline void mark(const many_t *many, const ps_publication_t *pub)
{
    const int64_t slot = pub->slot - many->rig->shared->publications;
    const uint32_t before = atomic_load(&pub->slot->dirty);
    if (before != PS_DIRTY_HOT && before != PS_DIRTY_DATA &&
        atomic_exchange(&pub->slot->dirty, PS_DIRTY_DATA) == PS_DIRTY_NOT) {
        ps_shared_set_dirty(many->rig->shared, (int32_t)slot);
    }
}

/* Writes a frame of a length behind the others, in the first term. */
static inline void write_frame(const ps_publication_t *pub, int32_t length)
{
    const ps_log_t *log = &pub->log;
    const int64_t at = ps_log_producer_position(log);
    ps_frame_t *frame = ps_frame_at(log, at);
    frame->term_offset = (int32_t)at;
    frame->session_id = log->session_id;
    frame->stream_id = log->stream_id;
    frame->term_id = 0;
    atomic_store(ps_frame_word(frame),
                 ps_frame_word_of(length, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA));
    atomic_fetch_add(&log->meta->tail[0], length);
}

/* Writes frames of one datagram each up to `to`. */
static inline void publish(const many_t *many, ps_publication_t *pub, int64_t to)
{
    while (ps_log_producer_position(&pub->log) < to) {
        write_frame(pub, FRAME);
    }
    atomic_fetch_add(&pub->slot->published_ordinal, 8);
    mark(many, pub);
}

static inline void open_window(const many_t *many, const ps_publication_t *pub, int32_t position,
                               int32_t window)
{
    uint8_t out[PS_CONTROL_MAX];
    const ps_sm_t sm = { .session_id = pub->log.session_id,
                         .stream_id = pub->log.stream_id,
                         .term_offset = position,
                         .window = window,
                         .receiver_id = 7 };
    rig_inject(many->rig, &many->rig->peer, out, ps_wire_build_sm(out, &sm, NULL));
}

/* One cycle. The quantum stays, whatever rate the sender measures. */
static inline void cycle(const many_t *many)
{
    sender(many)->bands.quantum = QUANTUM;
    sender(many)->busy_since_ns = -1; /* no cycle counts for the measured rate */
    many->rig->now_ns += 5 * US;
    (void)ps_driver_step(many->rig->driver, many->rig->now_ns);
    memnet_discard(many->rig->net);
}

static inline void connect_all(const many_t *many, int32_t window)
{
    for (int32_t i = 0; i < 10; i++) {
        cycle(many);
    }
    for (int32_t i = 0; i < many->count; i++) {
        open_window(many, many->pubs[i], 0, window);
        for (int32_t step = 0; step < 20 && many->pubs[i]->sender_limit == 0; step++) {
            many->rig->now_ns += MS;
            cycle(many);
        }
        CHECK(many->pubs[i]->sender_limit == window);
    }
}

static inline int64_t sent(const many_t *many)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < many->count; i++) {
        bytes += many->pubs[i]->sender_position;
    }
    return bytes;
}

#endif
