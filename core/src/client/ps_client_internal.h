/* SPDX-License-Identifier: Apache-2.0
 * ps_client_internal.h: declarations that the files of the client share. */
#ifndef PS_CLIENT_INTERNAL_H
#define PS_CLIENT_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "penstock.h"
#include "ps_clock.h"
#include "ps_counters.h"
#include "ps_error.h"
#include "ps_frame.h"
#include "ps_log.h"
#include "ps_shared.h"
#include "ps_wake.h"

#define PS_LIKELY(x)   __builtin_expect(!!(x), 1)
#define PS_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Number of forks between the process that loaded this library first and the present process. Each
 * forked child adds 1. A client handle stores the number of forks that had happened when the handle
 * was opened. A function that gets a handle compares the two numbers. If the numbers differ, the
 * process was forked after the handle was opened, and the function returns PS_E_FORKED. */
extern _Atomic uint32_t ps_fork_generation;

struct ps_client {
    ps_shared_t *shared;
    ps_cnc_t *cnc;
    int64_t client_id;
    int32_t slot;
    int32_t sender_wake_fd;
    int32_t receiver_wake_fd;
    uint32_t generation;
    int32_t counters;
    bool barriers; /* True if the sender's process-wide barriers (ps_barrier.h) reach this process,
                    * so that a publisher on a hot stream needs no fence. */
    const int64_t *clock_ns; /* Clock of the simulator; NULL: the client reads the system's
                              * clock. */
    int64_t clock_offset_ns; /* The time since 1970 is the simulator's clock plus this number of
                              * ns. */
    _Atomic int32_t daemon_away;
    _Atomic int64_t learned_ns; /* average time of recent sleeps */
    _Atomic uint64_t awaited;   /* 1 + the ticket of the last ps_client_await call that ended
                                 * without a wake-up. */
};

static inline bool ps_client_forked(const ps_client_t *client)
{
    return PS_UNLIKELY(client->generation !=
                       atomic_load_explicit(&ps_fork_generation, memory_order_relaxed));
}

/* Sets the error text and returns PS_E_FORKED. */
int ps_client_fail_forked(void);
/* Writes 1 to an eventfd; does nothing if the eventfd is full or missing. */
void ps_client_kick(int32_t fd);
/* Puts a publication into the sender's ready set and wakes the sender if it sleeps. The client
 * first sets the publication's word `dirty`, then the publication's bit in the dirty bitmap. The
 * sender clears first the bit, then `dirty`, and then checks the log. */
void ps_client_mark_dirty(const ps_client_t *client, int32_t publication_slot);
/* Notifies the sender even if the publication is marked dirty already: a publisher may have died
 * after it marked the publication, before it notified the sender. */
void ps_client_mark_dirty_again(const ps_client_t *client, int32_t publication_slot);
/* Requests that the sender checks the positions of a publication although no message was published.
 * The sender wakes the stream's readers after a new message, but not after this request. */
void ps_client_request_to_check(const ps_client_t *client, int32_t publication_slot);

typedef struct ps_isolated ps_isolated_t;

/* Retention limits of a stream (ps-retention): readers do not get data that exceeds a limit. */
typedef struct ps_retention {
    bool limits;    /* False: the stream has no retention limit. */
    int64_t bytes;  /* Readers do not get data that is more than this number of bytes behind the
                     * newest data; 0: no limit. */
    int64_t age_ns; /* Largest age; 0: no limit. */
    int64_t aged;   /* When the client last checked the age of data, all data below this position
                     * was older than age_ns. */
    int64_t due_ns; /* Time of the next look. */
    const struct ps_time_table *times; /* of the stream */
} ps_retention_t;

struct ps_img {
    ps_client_t *client;
    ps_log_t log;
    _Atomic int64_t *position_cell;   /* sub-pos: released */
    ps_subscriber_slot_t *subscriber; /* NULL: none */
    _Atomic int64_t *wake_position;   /* Address of the field wake_position in the slot of the image
                                       * or publication. When the client releases data up to
                                       * wake_position or beyond, the client must wake the agent
                                       * (ps_shared.h). NULL: none. */
    int32_t publication_slot;         /* -1: network image */
    int64_t correlation_id;
    int64_t join_position;
    int64_t delivered;
    int64_t released;
    /* The client uses the fields short_polls and `behind` only if a publisher of this host writes
     * the log. */
    int32_t short_polls;   /* Number of consecutive polls that found few messages. */
    int32_t behind;        /* 1: the last poll stopped at its fragment limit. */
    int32_t index;         /* in the subscription's list */
    int32_t fan_in_weight; /* Weight of this image in polls of the subscription, 1 to PS_FAN_IN_MAX;
                            * 0: the subscription polls its images in turn. */
    int64_t fan_in_owed;   /* In a subscription with weights: number of messages that this image may
                            * still deliver, multiplied by the sum of all weights. */
    int32_t stopped;       /* 0, or PS_E_CORRUPT after a poll found a damaged frame. */
    /* Assembly. */
    uint8_t *buffer;
    int64_t capacity;
    int64_t used;
    int64_t max_message_bytes;
    int32_t assembling;
    int32_t redeliver; /* 1: the next poll delivers the message in `assembled` again. */
    int32_t report_gaps;
    int64_t gap_from, gap_to; /* Start and end of the gap that the application has not yet fetched.
                               * If gap_from equals gap_to, the application has fetched all gaps. */
    int64_t gap_messages;     /* -1 not known */
    /* Credits of the reader (ps_client_image_credit.c); each count is a number of messages since
     * the reader joined. */
    int32_t credit_mode;  /* ps_credit_mode */
    int64_t passed;       /* up to the delivered position */
    _Atomic int64_t held; /* Number of credits that the application has in credit handles and has
                           * not yet returned (PS_CREDIT_HANDLES); `passed` counts the messages of
                           * these credits, too. */
    _Atomic int64_t leaked;
    bool uneven;  /* True if a poll has passed padding or a fragment since the client last set this
                   * field to false. Otherwise the poll passed one message with each frame. */
    bool guarded; /* True if the reader may skip unread data, because of `isolated` or `retention`.
                   */
    ps_retention_t retention;
    ps_isolated_t *isolated; /* NULL: the reader is not isolated */
    ps_message_t assembled;  /* position 0: none */
};

/* Adds a fragment to the message that is being assembled (`assembled`). Returns 1 when the message
 * is complete. Returns 0 if further fragments are missing, or if the function skips the fragment.
 * Returns PS_E_CORRUPT (message longer than max_message_bytes) or PS_E_NO_MEMORY; the image must
 * then stop.
 */
int ps_img_assemble(ps_img_t *image, const ps_message_t *fragment);

/* Makes a client read the simulator's clock in place of the system's clock: *now_ns +
 * PS_INVOKER_EPOCH_OFFSET_NS is the time since 1970. */
void ps_client_set_clock(ps_client_t *client, const int64_t *now_ns);
void ps_sub_set_clock(ps_sub_t *sub, const int64_t *now_ns);

/* ---- ps_client_image_isolated.c: images whose memory may be written over --------------------- */

/* If the parameters request an isolated reader (a reader for which the stream does not wait),
 * prepares the image for this reader. */
int ps_img_open_isolated(ps_img_t *image, const ps_img_params_t *params);
/* Returns true if the writer may have overwritten the memory at `position`, before or after the
 * client read it. */
bool ps_img_is_outrun(const ps_img_t *image, int64_t position);
/* State of an image before a poll scans the log: the delivered position, and the end of the last
 * complete message. */
typedef struct ps_img_before {
    int64_t delivered;
    int64_t whole;
} ps_img_before_t;
/* For isolated images: call ps_img_isolated_begin before a poll scans the log, and
 * ps_img_isolated_end after the scan. The function ps_img_isolated_end replaces the messages in
 * `out` with copies. If the writer has overwritten a message, the function drops this message.
 * Returns the number of messages, or an error code. */
ps_img_before_t ps_img_isolated_begin(ps_img_t *image);
int32_t ps_img_isolated_end(ps_img_t *image, const ps_img_before_t *before, ps_message_t *out,
                            int32_t count);
/* If the writer has overwritten data that an isolated reader has not read, moves the reader beyond
 * the overwritten data. `from` is the end of the last complete message before the overwritten
 * memory. Returns PS_E_GAP; 0 if the application did not request reports of gaps; or PS_E_CORRUPT.
 */
int32_t ps_img_skip(ps_img_t *image, int64_t from);
/* A reader under drop_oldest may be at most depth_bytes behind the newest data. If the reader is
 * farther behind, moves the reader forward until it is depth_bytes behind. After a skip the reader
 * gets at least one message before the next skip. Returns 1 if the reader does not skip, otherwise
 * the same values as ps_img_skip. */
int32_t ps_img_skip_lagged(ps_img_t *image, const ps_img_before_t *before);
/* Records that another process of the reader joined. `ordinal` is the number of messages below the
 * delivered position; -1: the number is unknown. */
void ps_img_isolated_taken_over(ps_img_t *image, int64_t ordinal);
/* Returns the number of messages below the delivered position; -1: the number is unknown. */
int64_t ps_img_isolated_ordinal(ps_img_t *image);
/* Records that the messages between `to` and the delivered position will be delivered again. */
void ps_img_isolated_rewound(ps_img_t *image, int64_t to);
/* Records that the reader moves past this number of messages; -1: the number is unknown. */
void ps_img_isolated_passed(ps_img_t *image, int64_t messages);

/* ---- ps_client_image_retention.c: images whose publisher limits what readers get ------------- */

void ps_img_open_retention(ps_img_t *image, const ps_img_params_t *params);
/* Moves a reader beyond the data that the publication no longer retains. Returns PS_E_GAP; 0 if the
 * reader did not move, or if the application requested no reports of gaps. Bound: 2^16 frames. */
int32_t ps_img_expire(ps_img_t *image);

/* ---- ps_client_image_credit.c: images whose reader grants credits ---------------------------- */

/* Returns the number of messages that end in [from, to). Dropped messages count, too: a padding
 * frame that replaces dropped messages states their number. Cost: visits all frames of the range.
 */
int64_t ps_img_messages(const ps_img_t *image, int64_t from, int64_t to);
/* Records that a poll moved from `from` to the delivered position and delivered `count`
 * messages. */
void ps_img_credit_polled(ps_img_t *image, int64_t from, const ps_message_t *out, int32_t count);
/* Records that the messages between `to` and the delivered position will be delivered again. */
void ps_img_credit_rewound(ps_img_t *image, int64_t to);
/* Call this function if the client has assembled the last message of a poll from fragments.
 * `messages` is 1 if the next poll will deliver this message again; -1 if a poll has delivered this
 * message again. */
void ps_img_credit_redelivered(ps_img_t *image, int64_t messages);
/* Returns the credits of all polled messages to the agent of the image. Call this function before
 * the client stores its released position. */
void ps_img_credit_released(ps_img_t *image);
/* Returns true if the client has returned as many credits as the agent waits for; the client must
 * then wake the agent. */
bool ps_img_credit_awaited(const ps_img_t *image);
/* Wakes the agent of the image. */
void ps_img_wake_agent(const ps_img_t *image);

#endif
