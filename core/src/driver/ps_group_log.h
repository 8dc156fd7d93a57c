/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_group_log.h: read access to a log for consumer groups. The functions find the end of the log's
 * contiguous frames, split ranges at the boundaries of frames, and read the bytes. The functions
 * map the log read-only, and check every frame header before use. Also the cffi declaration.
 *
 * Only one thread at a time may use a handle. Positions are stream positions. */
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
/* Returns the end of the committed frames that follow `from` without a gap. `from` must be a
 * position between two frames. The function checks at most max_bytes, and stops at the first
 * position at which no valid frame begins. */
int64_t ps_group_log_end(const ps_group_log_t *reader, int64_t from, int64_t max_bytes);
/* Splits a part off the start of the range [from, to), and returns the end position of this part.
 * This position lies between two frames, in the term of `from`, at most max_bytes beyond `from`.
 * The part contains at least one frame, even if that frame is longer than max_bytes. PS_E_CORRUPT:
 * no complete and valid frame begins at `from` and ends at or before `to`. */
int64_t ps_group_log_cut(const ps_group_log_t *reader, int64_t from, int64_t to, int64_t max_bytes);
/* Returns a pointer to the bytes at `position`. The caller may read the bytes up to the end of the
 * term. */
const uint8_t *ps_group_log_at(const ps_group_log_t *reader, int64_t position);

/* An entry of a log's index ring: a position and its time. ps_slot_read_index copies the ring's
 * entries, the oldest first, and returns their number. */
typedef struct ps_index_view {
    int64_t position, time_ns;
} ps_index_view_t;
int32_t ps_slot_read_index(const ps_shared_t *shared, int32_t kind, int32_t slot,
                           ps_index_view_t *out, int32_t capacity);

/* Copies the times at which the stream of a slot reached the positions [start, end); see
 * ps_times_read. */
int32_t ps_slot_read_times(const ps_shared_t *shared, int32_t kind, int32_t slot, int64_t start,
                           int64_t end, ps_index_view_t *out, int32_t capacity);
/* Joins entries in place until there are at most capacity (>= 2); returns their number. See
 * ps_times_join. */
int32_t ps_join_times(ps_index_view_t *entries, int32_t count, int32_t capacity);

/* Parameters of ps_driver_release. This function moves the position of a consumer group forward. A
 * consumer group is a subscriber without a client process. The call has the same effect as if a
 * client had released the data. If `position` is below the present position of the subscriber, the
 * call has no effect. Only the conductor thread may call ps_driver_release. publication_slot is
 * -1 if the subscriber reads a network image. `log` is the log of a group that grants credits;
 * NULL: the group grants no credits. If `log` is not NULL, the call also returns the group's
 * credits for the messages up to `position`. The call then releases no data beyond the frames
 * in the log. */
typedef struct ps_release_params {
    const ps_group_log_t *log;
    int64_t position;
    int32_t position_counter_id;
    int32_t subscriber_slot;
    int32_t publication_slot;
} ps_release_params_t;
int ps_driver_release(ps_driver_t *driver, const ps_release_params_t *params);
/* Writes the slot of a consumer group in penstock.dat, where other programs can read it. */
int ps_slot_describe_group(ps_shared_t *shared, int32_t index, int64_t committed,
                           int64_t retained_from, int64_t expiry_ms);

#endif
