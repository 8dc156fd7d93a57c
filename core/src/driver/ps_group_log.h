/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_group_log.h: read access to a log for consumer groups: the end of its contiguous frames,
 * places between frames, and the bytes. Mapped read-only; every header is checked. Also the cffi
 * declaration.
 *
 * One handle is used by one thread at a time. Positions are stream positions. */
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
/* Returns the producer position of a publication's log; INT64_MAX for the log of an image. */
int64_t ps_group_log_producer(const ps_group_log_t *reader);
/* Returns the end of the contiguous committed frames from the frame boundary `from`, after checking
 * at most max_bytes. The walk ends at a word that is not a valid frame of its position. */
int64_t ps_group_log_end(const ps_group_log_t *reader, int64_t from, int64_t max_bytes);
/* Returns the highest frame boundary in (from, to] within max_bytes and the term of `from`; at
 * least one frame is included, because padding may be long. PS_E_CORRUPT: no complete and valid
 * frame begins at `from` and ends at or before `to`. */
int64_t ps_group_log_cut(const ps_group_log_t *reader, int64_t from, int64_t to, int64_t max_bytes);
/* Returns a pointer to the bytes at position; the bytes are readable at least to the end of the
 * term. */
const uint8_t *ps_group_log_at(const ps_group_log_t *reader, int64_t position);

/* Copies entries of an index ring, the oldest first; returns their number, at most capacity. */
typedef struct ps_index_view {
    int64_t position, time_ns;
} ps_index_view_t;
int32_t ps_slot_read_index(const ps_shared_t *shared, int32_t kind, int32_t slot,
                           ps_index_view_t *out, int32_t capacity);

/* Reads the time table of a slot's stream for [start, end), like ps_times_read. */
int32_t ps_slot_read_times(const ps_shared_t *shared, int32_t kind, int32_t slot, int64_t start,
                           int64_t end, ps_index_view_t *out, int32_t capacity);

/* Parameters for moving the position of a subscriber that has no process. The move has the effect
 * of a client's release, and never goes backwards. Conductor thread. publication_slot -1: the
 * subscriber reads a network image. */
typedef struct ps_release_params {
    int64_t position;
    int32_t position_counter_id;
    int32_t subscriber_slot;
    int32_t publication_slot;
} ps_release_params_t;
int ps_driver_release(ps_driver_t *driver, const ps_release_params_t *params);
/* Writes the content of a group slot, for programs that map penstock.dat. */
int ps_slot_describe_group(ps_shared_t *shared, int32_t index, int64_t committed,
                           int64_t retained_from, int64_t expiry_ms);

#endif
