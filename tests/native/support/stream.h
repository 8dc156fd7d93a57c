/* SPDX-License-Identifier: Apache-2.0
 * stream.h: a directory with one log, its counters and slots, without a daemon: the test plays it.
 */
#ifndef STREAM_H
#define STREAM_H

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "ps_slots.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_log.h"
#include "ps_shared.h"

#define UNUSED_OK __attribute__((unused))

typedef struct stream {
    char directory[256];
    char path[300];
    ps_log_params_t params;
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_client_t *client;
    ps_log_t log; /* the daemon's view */
    int32_t client_slot;
    int32_t publication_slot;
    int32_t subscriber_slot;
    int32_t limit; /* counter ids */
    int32_t position;
} stream_t;

UNUSED_OK static void directory_make(char *out, size_t capacity)
{
    const char *base = getenv("TMPDIR");
    snprintf(out, capacity, "%s/penstock-test-XXXXXX", base != NULL ? base : P_tmpdir);
    CHECK(mkdtemp(out) != NULL);
}

UNUSED_OK static void directory_remove(const char *directory)
{
    DIR *entries = opendir(directory);
    CHECK(entries != NULL);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (entry->d_name[0] != '.') {
            char path[600];
            snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
            unlink(path);
        }
    }
    closedir(entries);
    CHECK_EQ(rmdir(directory), 0);
}

/* Bytes that a file takes, not its length. */
UNUSED_OK static int64_t memory_of(const char *path)
{
    struct stat info;
    CHECK_EQ(stat(path, &info), 0);
    return (int64_t)info.st_blocks * 512;
}

UNUSED_OK static ps_log_params_t log_params(const char *path)
{
    ps_log_params_t params;
    memset(&params, 0, sizeof params);
    params.path = path;
    params.correlation_id = 11;
    params.session_id = 0x11223344;
    params.stream_id = 1001;
    params.initial_term_id = INT32_MAX - 1; /* term ids wrap soon */
    params.term_id = params.initial_term_id;
    params.term_length = PS_TERM_MIN;
    params.mtu = 1408;
    params.page_size = 4096;
    params.publication_window_bytes = PS_TERM_MIN / 2;
    params.file_mode = 0600;
    params.sparse = 1;
    return params;
}

UNUSED_OK static ps_cnc_t *cnc_make(const char *directory)
{
    ps_cnc_params_t params;
    memset(&params, 0, sizeof params);
    params.directory = directory;
    params.client_liveness_timeout_ns = INT64_C(10000000000);
    params.start_ms = 1000000;
    params.pid = 42;
    params.counter_values_bytes = 128 * 128;
    params.error_log_bytes = 4096;
    params.file_mode = 0600;
    params.software_version = 256;
    ps_cnc_t *cnc = NULL;
    CHECK_EQ(ps_cnc_create(&params, &cnc), PS_OK);
    return cnc;
}

UNUSED_OK static ps_shared_t *shared_make(const char *directory)
{
    ps_shared_params_t params;
    memset(&params, 0, sizeof params);
    params.directory = directory;
    params.clients = 4;
    params.publications = 64;
    params.images = 4;
    params.subscribers = 8;
    params.groups = 2;
    params.file_mode = 0600;
    params.daemon_id = 7;
    params.daemon_epoch = 3;
    params.receiver_id_base = 99;
    params.pid = 42;
    params.start_ms = 1000000;
    ps_shared_t *shared = NULL;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_OK);
    return shared;
}

UNUSED_OK static ps_client_t *stream_client(const stream_t *stream)
{
    const ps_client_params_t params = { stream->directory, 5, stream->client_slot, -1, -1, -1 };
    ps_client_t *client = NULL;
    CHECK_EQ(ps_client_open(&params, &client), PS_OK);
    return client;
}

/* Fills the memory of [from, to) with what a reader that gets there `ahead` bytes later would take
 * for messages: empty ones of this very stream. */
UNUSED_OK static void stream_litter(const stream_t *stream, int64_t from, int64_t to, int64_t ahead)
{
    const ps_log_t *log = &stream->log;
    for (int64_t at = from; at < to; at += PS_FRAME_ALIGNMENT) {
        ps_frame_t *frame = ps_frame_at(log, at);
        frame->term_offset = (int32_t)(at & log->term_mask);
        frame->session_id = log->session_id;
        frame->stream_id = log->stream_id;
        frame->term_id = ps_term_id_at(at + ahead, log->shift, log->initial_term_id);
        frame->reserved_value = 666;
        atomic_store(ps_frame_word(frame),
                     ps_frame_word_of(PS_FRAME_ALIGNMENT, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA));
    }
}

/* `adjust` may change the log's parameters; NULL: as log_params says. */
UNUSED_OK static void stream_open(stream_t *stream, void (*adjust)(ps_log_params_t *))
{
    memset(stream, 0, sizeof *stream);
    directory_make(stream->directory, sizeof stream->directory);
    snprintf(stream->path, sizeof stream->path, "%s/11.logbuffer", stream->directory);
    stream->params = log_params(stream->path);
    if (adjust != NULL) {
        adjust(&stream->params);
    }
    stream->cnc = cnc_make(stream->directory);
    stream->shared = shared_make(stream->directory);
    CHECK_EQ(ps_log_create(&stream->params), PS_OK);
    CHECK_EQ(ps_log_map(stream->path, 0, &stream->log), PS_OK);
    stream->client_slot = ps_slot_allocate(stream->shared, PS_SLOT_CLIENT, 5);
    stream->publication_slot = ps_slot_allocate(stream->shared, PS_SLOT_PUBLICATION, 11);
    stream->subscriber_slot = ps_slot_allocate(stream->shared, PS_SLOT_SUBSCRIBER, 12);
    const int64_t start = ps_log_producer_position(&stream->log);
    stream->limit = ps_counter_allocate(stream->cnc, 1, NULL, 0, "pub-lmt", 7, 11, 5, 0, start, 0);
    stream->position =
        ps_counter_allocate(stream->cnc, 4, NULL, 0, "sub-pos", 7, 12, 5, 11, start, 0);
    stream->client = stream_client(stream);
    atomic_store(&stream->log.meta->is_connected, 1);
    if (stream->params.type == PS_LOG_SEALED) {
        const int64_t term_end = (start | stream->log.term_mask) + 1;
        stream_litter(stream, start + PS_FRAME_ALIGNMENT,
                      term_end + INT64_C(2) * stream->log.term_length, 0);
    }
}

UNUSED_OK static void stream_close(stream_t *stream)
{
    ps_client_close(stream->client);
    ps_log_unmap(&stream->log);
    ps_shared_close(stream->shared);
    ps_cnc_close(stream->cnc);
    directory_remove(stream->directory);
}

UNUSED_OK static ps_pub_t *stream_pub(stream_t *stream)
{
    const ps_pub_params_t params = { stream->path,  11, stream->publication_slot,
                                     stream->limit, 0,  stream->params.type != PS_LOG_CONCURRENT };
    ps_pub_t *pub = NULL;
    CHECK_EQ(ps_pub_open(stream->client, &params, &pub), PS_OK);
    return pub;
}

/* An image of this stream that begins with its first message, and reads the publication's ring.
 * isolation: PS_READER_... */
UNUSED_OK static ps_img_params_t stream_img_params(const stream_t *stream, int32_t isolation)
{
    return (ps_img_params_t){ .log_path = stream->path,
                              .correlation_id = 11,
                              .subscription_id = 12,
                              .position_counter_id = stream->position,
                              .subscriber_slot = stream->subscriber_slot,
                              .image_slot = -1,
                              .publication_slot = stream->publication_slot,
                              .isolation = isolation };
}

UNUSED_OK static ps_img_t *stream_img(stream_t *stream)
{
    const ps_img_params_t params = stream_img_params(stream, PS_READER_GATES);
    ps_img_t *image = NULL;
    CHECK_EQ(ps_img_open(stream->client, &params, &image), PS_OK);
    return image;
}

/* What the sender does for an IPC publication: cleans behind the consumer (a sealed log: anything
 * but that), then moves the limit. */
UNUSED_OK static void stream_turn(stream_t *stream, int64_t *clean)
{
    const int64_t consumed = ps_counter_get(stream->cnc, stream->position);
    const int64_t behind = consumed - stream->log.term_length;
    while (*clean < behind) {
        const int64_t end = (*clean | stream->log.term_mask) + 1;
        const int64_t to = end < behind ? end : behind;
        if (stream->params.type == PS_LOG_SEALED) {
            stream_litter(stream, *clean, to, INT64_C(3) * stream->log.term_length);
        } else {
            ps_log_clean(&stream->log, *clean, to);
        }
        *clean = to;
    }
    ps_counter_set(stream->cnc, stream->limit, consumed + stream->log.term_length / 2);
}

#endif
