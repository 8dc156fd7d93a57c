/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_group_log.h: a log as the control plane reads it for consumer groups: where its contiguous
 * frames end, where whole frames can be cut, and the bytes themselves.  Mapped read-only; what the
 * frames say is checked.  Also the cffi declaration.
 *
 * One handle is used by one thread at a time.  Positions are bytes since the stream's beginning.
 */
#ifndef PS_GROUP_LOG_H
#define PS_GROUP_LOG_H

#include <stdint.h>

#include "ps_driver.h"

typedef struct ps_group_log ps_group_log_t;

typedef struct ps_log_facts {
    int64_t correlation_id;
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_length;
    int32_t mtu;
} ps_log_facts_t;

/* PS_E_SYSTEM, PS_E_CORRUPT, PS_E_NO_MEMORY. */
int ps_group_log_open(const char *path, ps_group_log_t **out);
void ps_group_log_close(ps_group_log_t *reader);
void ps_group_log_facts(const ps_group_log_t *reader, ps_log_facts_t *out);
/* Where a publication's producers stand; INT64_MAX for the log of an image. */
int64_t ps_group_log_producer(const ps_group_log_t *reader);
/* How far committed frames reach without a gap from the frame boundary `from`, checking no more
 * than max_bytes. A word that is no frame of this position ends the walk. */
int64_t ps_group_log_end(const ps_group_log_t *reader, int64_t from, int64_t max_bytes);
/* The furthest frame boundary in (from, to] within max_bytes and the term of `from`; one frame is
 * always admitted (padding may be long).  PS_E_CORRUPT: no whole frame of this position begins at
 * `from` and ends at or before `to`. */
int64_t ps_group_log_cut(const ps_group_log_t *reader, int64_t from, int64_t to, int64_t max_bytes);
/* Where the bytes of position lie; they go on to the end of its term at least. */
const uint8_t *ps_group_log_at(const ps_group_log_t *reader, int64_t position);

/* Entries of an index ring, oldest first; returns how many, at most capacity. */
typedef struct ps_index_view {
    int64_t position, time_ns;
} ps_index_view_t;
int32_t ps_slot_read_index(const ps_shared_t *shared, int32_t kind, int32_t slot,
                           ps_index_view_t *out, int32_t capacity);

/* When a slot's stream reached the positions of [start, end): ps_times_read. */
int32_t ps_slot_read_times(const ps_shared_t *shared, int32_t kind, int32_t slot, int64_t start,
                           int64_t end, ps_index_view_t *out, int32_t capacity);

/* Moves the position of a subscriber that has no process, as a client's release would: never
 * backwards.  Conductor thread.  publication_slot -1: of a network image. */
typedef struct ps_release_params {
    int64_t position;
    int32_t position_counter_id;
    int32_t subscriber_slot;
    int32_t publication_slot;
} ps_release_params_t;
int ps_driver_release(ps_driver_t *driver, const ps_release_params_t *params);
/* Content of a group slot, for programs that map penstock.dat. */
int ps_slot_describe_group(ps_shared_t *shared, int32_t index, int64_t committed,
                           int64_t retained_from, int64_t expiry_ms);

#endif
