/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_slots.h: the control plane's functions for the file DIR/penstock.dat and its slots (layout:
 * ps_shared.h). Only the conductor thread calls these functions, unless a comment states otherwise.
 * Tools map the file read-only. Also the cffi declaration.
 */
#ifndef PS_SLOTS_H
#define PS_SLOTS_H

#include <stdint.h>

#include "ps_credit_view.h"
#include "ps_pressure_view.h"

typedef struct ps_shared ps_shared_t;

typedef struct ps_shared_params {
    const char *directory;
    int32_t clients;      /* slot counts, 1..65536 */
    int32_t publications; /* multiple of 64 */
    int32_t images;
    int32_t subscribers;
    int32_t groups;
    int32_t file_mode;
    uint64_t daemon_id;
    uint64_t daemon_epoch;
    int64_t receiver_id_base;
    int64_t pid;
    int64_t start_ms;
} ps_shared_params_t;

int ps_shared_create(const ps_shared_params_t *params, ps_shared_t **out);
int ps_shared_open(const char *directory, int32_t read_only, ps_shared_t **out);
/* Adopts the opened penstock.dat of a dead daemon. Keeps the slots, copies the ids and the pid from
 * params, marks both agents as awake, and sets the state STARTING. Call this function while no
 * agent runs. */
void ps_shared_adopt(ps_shared_t *shared, const ps_shared_params_t *params);
void ps_shared_close(ps_shared_t *shared);
/* Version of the layout of penstock.dat. The version rises when the layout changes. A daemon
 * refuses a directory with another version. */
enum ps_shared_layout { PS_SHARED_VERSION = 13 };
enum ps_driver_state { PS_DRIVER_STARTING = 0, PS_DRIVER_RUNNING = 1, PS_DRIVER_STOPPED = 2 };
void ps_shared_set_state(ps_shared_t *shared, int32_t state);
int32_t ps_shared_state(const ps_shared_t *shared);
uint64_t ps_shared_epoch(const ps_shared_t *shared);
int64_t ps_shared_pid(const ps_shared_t *shared);
void ps_shared_set_storage(ps_shared_t *shared, int64_t budget_bytes, int64_t used_bytes);

enum ps_slot_kind {
    PS_SLOT_CLIENT = 1,
    PS_SLOT_PUBLICATION = 2,
    PS_SLOT_IMAGE = 3,
    PS_SLOT_SUBSCRIBER = 4,
    PS_SLOT_GROUP = 5
};
/* Takes a free slot, zeroes it, allocates memory for its history, and stores id. Returns the index,
 * PS_E_NO_SPACE or PS_E_SYSTEM. Before the caller frees the slot with ps_slot_free, all agents must
 * have stopped using it. */
int32_t ps_slot_allocate(ps_shared_t *shared, int32_t kind, int64_t id);
void ps_slot_free(ps_shared_t *shared, int32_t kind, int32_t index);
int32_t ps_slot_count(const ps_shared_t *shared, int32_t kind);
int64_t ps_slot_id(const ps_shared_t *shared, int32_t kind, int32_t index); /* 0: free */
void ps_slot_describe_client(ps_shared_t *shared, int32_t index, int64_t pid, int64_t uid,
                             const char *name);
/* Advances a client's futex word and wakes the client. Any thread. */
void ps_slot_wake_client(ps_shared_t *shared, int32_t index);
/* Sets the eventfd by which the daemon wakes a client that waits in an event loop; -1: none. The
 * eventfd must be non-blocking. The agents may write to fd until they end. While the agents run,
 * the caller must keep fd open. To replace the eventfd while the agents run, the caller must use
 * dup2. Any thread. */
void ps_slot_watch_client(ps_shared_t *shared, int32_t index, int32_t fd);

/* Copies the governor's latest sample. If the sample is older than PS_PRESSURE_STALE_NS at now_ns,
 * *out contains no pressure and no delays. Any thread. */
void ps_slot_read_scheduler(const ps_shared_t *shared, int64_t now_ns, ps_scheduler_view_t *out);
/* Copies both accounts of a publication slot (ps_pressure_view.h). Returns PS_OK. PS_E_AGAIN: the
 * sender changed the accounts during each of eight attempts to copy them, so the function only sets
 * out->stale to 1. PS_E_INVALID. Any thread. */
int ps_slot_read_pressure(const ps_shared_t *shared, int32_t publication_slot,
                          ps_pressure_view_t *out);
enum ps_strategy_bytes { PS_STRATEGY_BYTES = 64 };

/* States of a reader that grants credits. The agent stores the state in the reader's slot, from
 * which the client reads the state. */
enum ps_credit_state {
    PS_CREDIT_NONE = 0,
    PS_CREDIT_GRANTING = 1,
    PS_CREDIT_FREEZING = 2,   /* The reader has frozen its credits, and the sender has not
                               * acknowledged the freeze. */
    PS_CREDIT_FROZEN = 3,     /* The sender admits no new message; messages that publishers claimed
                               * before the freeze may still arrive. */
    PS_CREDIT_SETTLED = 4,    /* Until the reader resumes, it may receive messages up to the number
                               * `final`, but no further messages. */
    PS_CREDIT_UNSUPPORTED = 5 /* The sender does not support credits, or the number of messages in
                               * the stream is unknown. */
};
/* Reads two message numbers (ordinals). Receivers have granted credits for the messages up to the
 * first number. Publishers have taken credits for the messages up to the second number. Returns 1,
 * or 0 if no receiver grants credits. */
int ps_slot_read_spent(const ps_shared_t *shared, int32_t publication_slot, int64_t *granted,
                       int64_t *spent);
int ps_slot_read_credit(const ps_shared_t *shared, int32_t subscriber_slot, ps_credit_view_t *out);

/* Copy of an image's state from its slot. The receiver may write during the copy, so the fields may
 * belong to different moments. */
typedef struct ps_image_view {
    int64_t id; /* 0: the slot is free */
    int32_t session_id;
    int32_t stream_id;
    int32_t gaps;              /* open now */
    int32_t fill_ppm;          /* Unread bytes divided by the receiver's capacity, in parts per
                                * million. */
    int64_t lost_bytes;        /* Number of bytes lost in all gaps since the image began. */
    int64_t rtt_ns;            /* smoothed, 0 unknown */
    int64_t window_bytes;      /* last advertised */
    int64_t congestion_window; /* bytes, 0: no such bound */
} ps_image_view_t;
int ps_slot_read_image(const ps_shared_t *shared, int32_t image_slot, ps_image_view_t *out);

#endif
