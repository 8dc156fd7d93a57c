/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_cnc.h: functions for the file DIR/cnc.dat, which contains the counters, the error log and the
 * heartbeat in Aeron's layout. This header also has the functions for the loss report file. Only
 * the conductor thread uses these functions; tools map the files read-only. Also the cffi
 * declaration.
 */
#ifndef PS_CNC_H
#define PS_CNC_H

#include <stdint.h>

typedef struct ps_cnc ps_cnc_t;

typedef struct ps_cnc_params {
    const char *directory; /* exists */
    int64_t client_liveness_timeout_ns;
    int64_t start_ms; /* epoch */
    int64_t pid;
    int32_t counter_values_bytes; /* Size of the area of counter values, a multiple of 128; the area
                                   * of counter metadata is 4 times as large. */
    int32_t error_log_bytes;
    int32_t file_mode;        /* permission bits */
    int32_t software_version; /* major<<16 | minor<<8 | patch */
} ps_cnc_params_t;

/* Creates cnc.dat (which must not exist) with the system counters, and creates loss-report.dat.
 * Stores the version field last, with release order. A program that reads the version in the file
 * therefore also reads valid values of all other fields. PS_E_SYSTEM, PS_E_NO_SPACE. */
int ps_cnc_create(const ps_cnc_params_t *params, ps_cnc_t **out);
/* Maps an existing cnc.dat. PS_E_VERSION: the daemon has not completed cnc.dat yet, or the version
 * of the file's layout is not 0.2.x. */
int ps_cnc_open(const char *directory, int32_t read_only, ps_cnc_t **out);
/* Adopts the opened cnc.dat of a dead daemon; the counters keep their ids and values. Call this
 * function while no agent runs. */
void ps_cnc_adopt(ps_cnc_t *cnc, int64_t pid, int64_t start_ms);
void ps_cnc_close(ps_cnc_t *cnc);
void ps_cnc_heartbeat(ps_cnc_t *cnc, int64_t epoch_ms); /* -1: clean shutdown */
int64_t ps_cnc_get_heartbeat(const ps_cnc_t *cnc);
/* After ps_cnc_adopt: returns the last heartbeat of the dead daemon; -1: that daemon shut down
 * cleanly. Without ps_cnc_adopt: returns 0. */
int64_t ps_cnc_alive_until(const ps_cnc_t *cnc);
int64_t ps_cnc_pid(const ps_cnc_t *cnc);
int64_t ps_cnc_start_ms(const ps_cnc_t *cnc);
int64_t ps_cnc_next_id(ps_cnc_t *cnc); /* correlation ids, > 0 */
/* Answers at most 64 of the commands that Aeron clients wrote into the ring of cnc.dat. Each answer
 * is ERROR 8 (not supported). Returns the number of answered commands. */
int32_t ps_cnc_answer_commands(ps_cnc_t *cnc, const char *reason);
/* Adds an error to the distinct error log; if the log already has this text, increases the text's
 * count. Set `stranger` if a datagram caused the error. Errors that datagrams cause may add entries
 * only to the first half of the error log. PS_E_INVALID, PS_E_NO_SPACE. */
int ps_cnc_log_error(ps_cnc_t *cnc, int64_t epoch_ms, int32_t stranger, const char *text);
/* Reads record `index` of the error log. Returns 1, or 0 if there is no such record. A text longer
 * than `capacity` is cut. */
int32_t ps_cnc_read_error(const ps_cnc_t *cnc, int32_t index, int64_t *count, int64_t *first_ms,
                          int64_t *last_ms, char *text, int32_t capacity);
/* Adds a loss to the loss report (docs/spec/shared-memory.md section 2). Losses with the same
 * session, stream, channel and source share one entry. Forged datagrams can invent any number of
 * streams, so the number of entries is limited. For each channel and stream, a sending host has at
 * most PS_LOSS_SESSIONS entries. Young streams (`settled` is 0) may add entries only in the first
 * eighth of the file. Settled streams may add entries only in the first three quarters of the file.
 * A loss for which no new entry is allowed is added to a shared entry with session 0. A shared
 * entry sums up the losses of one source host. If a source host gets no shared entry, its losses
 * are added to the channel's entry "other sources". If a channel gets no such entry, its losses are
 * added to the entry "other channels". PS_E_INVALID. PS_E_NO_SPACE: the loss report has no room for
 * a new entry, nor for a new shared entry. */
enum ps_loss_bounds { PS_LOSS_SESSIONS = 16 };

typedef struct ps_loss {
    int64_t epoch_ms;
    int64_t bytes;
    int32_t gaps; /* Number of new gaps (>= 0); each gap is one observation, as in Aeron. The value
                   * 0 means that no gap is new: gaps that were reported before have become longer.
                   * A new entry counts at least one observation, because an entry without
                   * observations marks the end of the report. */
    int32_t session_id;
    int32_t stream_id;
    int32_t settled; /* 1: the stream is so old that it cannot belong to a flood of forged sessions.
                      */
    const char *channel;
    const char *source; /* "host:port" */
} ps_loss_t;

int ps_cnc_report_loss(ps_cnc_t *cnc, const ps_loss_t *loss);

int32_t ps_counter_capacity(const ps_cnc_t *cnc);
/* Allocates a counter. `key` has at most 112 bytes and `label` at most 380; longer values are cut.
 * Returns the id or PS_E_NO_SPACE. */
int32_t ps_counter_allocate(ps_cnc_t *cnc, int32_t type_id, const void *key, int32_t key_length,
                            const char *label, int32_t label_length, int64_t registration_id,
                            int64_t owner_id, int64_t reference_id, int64_t value, int64_t now_ms);
void ps_counter_free(ps_cnc_t *cnc, int32_t counter_id, int64_t now_ms);
int64_t ps_counter_get(const ps_cnc_t *cnc, int32_t counter_id);
void ps_counter_set(ps_cnc_t *cnc, int32_t counter_id, int64_t value);
typedef struct ps_counter_info {
    int32_t state; /* State of the counter: 1: allocated; -1: reclaimed; 0: never used, so that the
                    * list of counters ends here. */
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

/* System counter ids (docs/spec/shared-memory.md section 2). */
enum ps_system_counter {
    PS_SYS_BYTES_SENT = 0,
    PS_SYS_BYTES_RECEIVED = 1,
    PS_SYS_NAKS_SENT = 5,
    PS_SYS_NAKS_RECEIVED = 6,
    PS_SYS_SM_SENT = 7,
    PS_SYS_SM_RECEIVED = 8,
    PS_SYS_HEARTBEATS_SENT = 9,
    PS_SYS_HEARTBEATS_RECEIVED = 10,
    PS_SYS_RETRANSMITS_SENT = 11,
    PS_SYS_UNDER_RUNS = 12,
    PS_SYS_OVER_RUNS = 13,
    PS_SYS_INVALID_PACKETS = 14,
    PS_SYS_ERRORS = 15,
    PS_SYS_SHORT_SENDS = 16,
    PS_SYS_FREE_FAILS = 17,
    PS_SYS_BACK_PRESSURE = 18,
    PS_SYS_UNBLOCKED_PUBLICATIONS = 19,
    PS_SYS_UNBLOCKED_COMMANDS = 20,
    PS_SYS_TTL_ASYMMETRY = 21,
    PS_SYS_LOSS_GAP_FILLS = 23,
    PS_SYS_CLIENT_TIMEOUTS = 24,
    PS_SYS_BYTES_MAPPED = 35,
    PS_SYS_RETRANSMITTED_BYTES = 36,
    PS_SYS_RETRANSMIT_OVERFLOW = 37,
    PS_SYS_ERROR_FRAMES_RECEIVED = 38,
    PS_SYS_ERROR_FRAMES_SENT = 39,
    PS_SYS_PUBLICATIONS_REVOKED = 40,
    PS_SYS_IMAGES_REVOKED = 41,
    PS_SYS_IMAGES_REJECTED = 42,
    PS_SYS_SM_REJECTED = 44
};

#endif
