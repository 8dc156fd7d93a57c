/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_admin.h: files of a daemon directory: cnc.dat, penstock.dat, log buffers.  Control plane only
 * (conductor thread; tools map read-only).  Also the cffi declaration.
 */
#ifndef PS_ADMIN_H
#define PS_ADMIN_H

#include <stdint.h>

typedef struct ps_cnc ps_cnc_t;
typedef struct ps_shared ps_shared_t;

/* ---- cnc.dat (aeron-cnc.md section 1; counters aeron-interop.md section 9) ------------------- */

typedef struct ps_cnc_params {
    const char *directory; /* exists */
    int64_t client_liveness_timeout_ns;
    int64_t start_ms; /* epoch */
    int64_t pid;
    int32_t counter_values_bytes; /* multiple of 128; metadata is 4 x this */
    int32_t error_log_bytes;
    int32_t file_mode;        /* permission bits */
    int32_t software_version; /* major<<16 | minor<<8 | patch */
} ps_cnc_params_t;

/* Makes cnc.dat (must not exist) with system counters and loss-report.dat; the version is
 * release-stored last.  PS_E_SYSTEM, PS_E_NO_SPACE. */
int ps_cnc_create(const ps_cnc_params_t *params, ps_cnc_t **out);
/* Maps an existing one.  PS_E_VERSION when it is not ready or not 0.2.x. */
int ps_cnc_open(const char *directory, int32_t read_only, ps_cnc_t **out);
/* Makes an opened cnc.dat of a dead daemon the caller's: counters and ids stay.  No agent runs. */
void ps_cnc_adopt(ps_cnc_t *cnc, int64_t pid, int64_t start_ms);
void ps_cnc_close(ps_cnc_t *cnc);
void ps_cnc_heartbeat(ps_cnc_t *cnc, int64_t epoch_ms); /* -1: clean shutdown */
int64_t ps_cnc_get_heartbeat(const ps_cnc_t *cnc);
int64_t ps_cnc_pid(const ps_cnc_t *cnc);
int64_t ps_cnc_start_ms(const ps_cnc_t *cnc);
int64_t ps_cnc_next_id(ps_cnc_t *cnc); /* correlation ids, > 0 */
/* Answers every waiting CnC command with ERROR 8 (not supported).  Returns how many. At most 64. */
int32_t ps_cnc_answer_commands(ps_cnc_t *cnc, const char *reason);
/* Distinct error log: repeats count up. */
int ps_cnc_log_error(ps_cnc_t *cnc, int64_t epoch_ms, const char *text);
/* Reads record `index` of the error log: 1 = filled, 0 = no more.  text is cut to capacity. */
int32_t ps_cnc_read_error(const ps_cnc_t *cnc, int32_t index, int64_t *count, int64_t *first_ms,
                          int64_t *last_ms, char *text, int32_t capacity);
/* Loss report (aeron-interop.md 9.5): adds to the entry of this (session, stream, channel,
 * source). */
int ps_cnc_report_loss(ps_cnc_t *cnc, int64_t epoch_ms, int64_t bytes, int32_t session_id,
                       int32_t stream_id, const char *channel, const char *source);

int32_t ps_counter_capacity(const ps_cnc_t *cnc);
/* Allocates; key <= 112 bytes, label <= 380 (both cut).  Returns the id or PS_E_NO_SPACE. */
int32_t ps_counter_allocate(ps_cnc_t *cnc, int32_t type_id, const void *key, int32_t key_length,
                            const char *label, int32_t label_length, int64_t registration_id,
                            int64_t owner_id, int64_t reference_id, int64_t value, int64_t now_ms);
void ps_counter_free(ps_cnc_t *cnc, int32_t counter_id, int64_t now_ms);
int64_t ps_counter_get(const ps_cnc_t *cnc, int32_t counter_id);
void ps_counter_set(ps_cnc_t *cnc, int32_t counter_id, int64_t value);
typedef struct ps_counter_info {
    int32_t state; /* 0 never used (end), 1 allocated, -1 reclaimed */
    int32_t type_id;
    int64_t value;
    int64_t registration_id;
    int64_t owner_id;
    int64_t reference_id;
    int32_t label_length;
    char label[384]; /* NUL-terminated */
    uint8_t key[112];
} ps_counter_info_t;
void ps_counter_read(const ps_cnc_t *cnc, int32_t counter_id, ps_counter_info_t *out);

/* ---- penstock.dat ---------------------------------------------------------------------------- */

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
/* Makes an opened penstock.dat of a dead daemon the caller's: slots stay, the identity of params
 * comes in, nobody is parked, the state is STARTING.  No agent runs. */
void ps_shared_adopt(ps_shared_t *shared, const ps_shared_params_t *params);
void ps_shared_close(ps_shared_t *shared);
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
/* Takes a free slot, zeroes it, stores id.  Returns the index or PS_E_NO_SPACE. */
int32_t ps_slot_allocate(ps_shared_t *shared, int32_t kind, int64_t id);
void ps_slot_free(ps_shared_t *shared, int32_t kind, int32_t index);
int32_t ps_slot_count(const ps_shared_t *shared, int32_t kind);
int64_t ps_slot_id(const ps_shared_t *shared, int32_t kind, int32_t index); /* 0: free */
void ps_slot_describe_client(ps_shared_t *shared, int32_t index, int64_t pid, int64_t uid,
                             const char *name);
/* Bumps a client's futex word and wakes it. Any thread. */
void ps_slot_wake_client(ps_shared_t *shared, int32_t index);

/* Causes (semantics.md section 7), in precedence order on ties. */
enum ps_cause {
    PS_CAUSE_NONE = 0,
    PS_CAUSE_RECEIVER_WINDOW = 1,
    PS_CAUSE_GROUP_STRATEGY = 2,
    PS_CAUSE_CONGESTION_WINDOW = 3,
    PS_CAUSE_NAK_RATE = 4,
    PS_CAUSE_CREDIT = 5,
    PS_CAUSE_SCHEDULER = 6,
    PS_CAUSE_GOVERNOR = 7,
    PS_CAUSE_RATE_LIMIT = 8,
    PS_CAUSE_TERM_ROTATION = 9,
    PS_CAUSE_NO_RECEIVER = 10,
    PS_CAUSE_SLOW_SUBSCRIBER = 11,
    PS_CAUSE_SPY = 12,
    PS_CAUSE_LOSS_REPAIR = 13,
    PS_CAUSE_SOCKET = 14,
    PS_CAUSE_BLOCKED_CLAIM = 15,
    PS_CAUSE_JOIN_HOLD = 16,
    PS_CAUSE_STORAGE = 17,
    PS_CAUSE_DAEMON_AWAY = 18,
    PS_CAUSE_COUNT = 32
};
/* The account of a publication slot, read without lock (values may be mid-update by one
 * interval). */
typedef struct ps_pressure_view {
    int32_t cause; /* binding now */
    int64_t since_ns;
    int64_t culprit;        /* receiver id or client id, 0 unknown */
    int64_t blocked_ns[32]; /* by ps_cause */
    int64_t culprit_ids[9]; /* the eight largest; the last entry is all others */
    int64_t culprit_ns[9];
    int64_t published_ordinal;
    int64_t sent_ordinal;
} ps_pressure_view_t;
int ps_slot_read_pressure(const ps_shared_t *shared, int32_t publication_slot,
                          ps_pressure_view_t *out);

/* What an image slot says of its path, read without lock. */
typedef struct ps_image_view {
    int64_t id; /* 0: the slot is free */
    int32_t session_id;
    int32_t stream_id;
    int32_t gaps;              /* open now */
    int32_t fill_ppm;          /* unread of what the receiver takes */
    int64_t lost_bytes;        /* in all gaps that ever opened */
    int64_t rtt_ns;            /* smoothed, 0 unknown */
    int64_t window_bytes;      /* last granted */
    int64_t congestion_window; /* bytes, 0: no such bound */
} ps_image_view_t;
int ps_slot_read_image(const ps_shared_t *shared, int32_t image_slot, ps_image_view_t *out);

/* ---- log buffers ----------------------------------------------------------------------------- */

typedef struct ps_log_params {
    const char *path;
    int64_t correlation_id;
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_id; /* of the starting position (publications) */
    int32_t term_offset;
    int32_t term_length; /* 64 KiB..1 GiB, power of two */
    int32_t mtu;
    int32_t page_size; /* 4096.. power of two */
    int32_t publication_window_bytes;
    int32_t receiver_window_bytes;
    int32_t sndbuf_bytes, sndbuf_default_bytes, sndbuf_max_bytes;
    int32_t rcvbuf_bytes, rcvbuf_default_bytes, rcvbuf_max_bytes;
    int32_t max_resend;
    int64_t entity_tag;
    int64_t response_correlation_id;
    int64_t linger_timeout_ns;
    int64_t untethered_window_limit_timeout_ns;
    int64_t untethered_linger_timeout_ns;
    int64_t untethered_resting_timeout_ns;
    uint8_t group, is_response, rejoin, reliable, sparse, signal_eos, spies_simulate_connection,
        tether;
    uint8_t type; /* 0 concurrent publication, 1 exclusive, 2 image, 3 sealed */
    int32_t file_mode;
    uint8_t reserve_terms; /* how many terms to allocate for real now, 0..3, from the
                                      starting term on */
} ps_log_params_t;

int64_t ps_log_file_length(int32_t term_length, int32_t page_size);
/* Makes the file (must not exist), sized and sparse but for metadata and reserve_terms.
 * PS_E_NO_SPACE (text has needed and available bytes), PS_E_SYSTEM, PS_E_INVALID. */
int ps_log_create(const ps_log_params_t *params);
/* Allocates the blocks of the term holding position.  PS_E_NO_SPACE. Any thread. */
int ps_log_reserve_term(const char *path, int32_t term_length, int64_t position);
/* Gives back the memory of all terms but [from, to), whose ends are terms'; what they leave reads
 * as zeroes, and the first page of each stays.  Where the file system cannot do that they are
 * zeroed.  PS_E_SYSTEM.  Any thread. */
int ps_log_punch(const char *path, int32_t term_length, int64_t from, int64_t to);
/* Bytes free on the file system of path, or negative. */
int64_t ps_free_bytes(const char *path);

#endif
