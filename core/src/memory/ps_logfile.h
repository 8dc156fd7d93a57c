/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_logfile.h: creates the files of log buffers, and allocates and releases their disk blocks.
 * Control plane only. Also the cffi declaration.
 */
#ifndef PS_LOGFILE_H
#define PS_LOGFILE_H

#include <stdint.h>

typedef struct ps_log_params {
    const char *path;
    int64_t correlation_id;
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_id; /* of the starting position (publications) */
    int32_t term_offset;
    int32_t term_length; /* Term length in bytes, a power of two from 64 KiB to 1 GiB. */
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
    uint8_t type; /* Type of the log: 0 concurrent publication, 1 exclusive publication, 2 image, 3
                   * sealed publication. */
    int32_t file_mode;
    uint8_t reserve_terms;            /* ps_log_create allocates disk blocks for this number of
                                       * terms, counted from the term of the start position: 0 to
                                       * 3. */
    int64_t reserve_from, reserve_to; /* ps_log_create also allocates disk blocks for the positions
                                       * [reserve_from, reserve_to). */
} ps_log_params_t;

int64_t ps_log_file_length(int32_t term_length, int32_t page_size);
/* Creates the file with its full length; the file must not exist. The metadata page and the
 * reserved terms get disk blocks; all other ranges are sparse. Returns PS_E_NO_SPACE (the error
 * text states the bytes needed and available), PS_E_SYSTEM or PS_E_INVALID. */
int ps_log_create(const ps_log_params_t *params);
/* Allocates the disk blocks of positions [from, to), at most three terms. PS_E_NO_SPACE,
 * PS_E_INVALID. Any thread. */
int ps_log_reserve(const char *path, int32_t term_length, int64_t from, int64_t to);
/* Releases the memory of all terms outside [from, to); from and to are term boundaries. Released
 * memory reads as zeroes; the first page of each term keeps its memory. If the file system cannot
 * release memory, the function writes zeroes into these terms. PS_E_SYSTEM. Any thread. */
int ps_log_release(const char *path, int32_t term_length, int64_t from, int64_t to);
/* Returns the free bytes of the file system of path; negative: an error. */
int64_t ps_free_bytes(const char *path);

#endif
