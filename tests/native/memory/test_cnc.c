/* SPDX-License-Identifier: Apache-2.0
 * test_cnc.c: cnc.dat: layout, counters, reports, answering an Aeron client's commands. */
#include <fcntl.h>

#include "ps_cnc_internal.h"
#include "stream.h"

static void the_layout_is_the_reference(void)
{
    char directory[256];
    char path[300];
    directory_make(directory, sizeof directory);
    ps_cnc_params_t params;
    memset(&params, 0, sizeof params);
    params.directory = directory;
    params.client_liveness_timeout_ns = 10;
    params.start_ms = 123;
    params.pid = 9;
    params.counter_values_bytes = 8388608;
    params.error_log_bytes = 4194304;
    params.file_mode = 0666;
    params.software_version = 1;
    ps_cnc_t *cnc = NULL;
    CHECK_EQ(ps_cnc_create(&params, &cnc), PS_OK);
    snprintf(path, sizeof path, "%s/cnc.dat", directory);
    struct stat info;
    CHECK_EQ(stat(path, &info), 0);
    CHECK_EQ(info.st_size, 48238592);
    CHECK_EQ(cnc->broadcast - cnc->base, 0x100380);
    CHECK_EQ((uint8_t *)cnc->metadata - cnc->base, 0x200400);
    CHECK_EQ((uint8_t *)cnc->values - cnc->base, 0x2200400);
    CHECK_EQ(cnc->error_log - cnc->base, 0x2A00400);
    int32_t header[13];
    memcpy(header, cnc->base, sizeof header);
    CHECK_EQ(header[0], 0x200);
    CHECK_EQ(header[1], 1049344);
    CHECK_EQ(header[2], 1048704);
    CHECK_EQ(header[3], 33554432);
    CHECK_EQ(header[12], 4096);
    CHECK_EQ(ps_cnc_next_id(cnc), 1);
    CHECK_EQ(ps_cnc_next_id(cnc), 2);
    CHECK_EQ(ps_cnc_get_heartbeat(cnc), 123);
    CHECK_EQ(ps_cnc_pid(cnc), 9);
    ps_cnc_t *reader = NULL;
    CHECK_EQ(ps_cnc_open(directory, 1, &reader), PS_OK);
    ps_cnc_heartbeat(cnc, -1);
    CHECK_EQ(ps_cnc_get_heartbeat(reader), -1);
    CHECK_EQ(ps_cnc_start_ms(reader), 123);
    ps_cnc_close(reader);
    ps_cnc_close(cnc);
    CHECK_EQ(ps_cnc_create(&params, &cnc), PS_E_SYSTEM); /* exists: and stays */
    CHECK(cnc == NULL);
    CHECK_EQ(ps_cnc_open(directory, 1, &reader), PS_OK);
    ps_cnc_close(reader);
    directory_remove(directory);
}

static void memory_is_taken_as_counters_are(void)
{
    char directory[256];
    char path[300];
    directory_make(directory, sizeof directory);
    const ps_cnc_params_t params = { .directory = directory,
                                     .client_liveness_timeout_ns = 10,
                                     .counter_values_bytes = 8 << 20,
                                     .error_log_bytes = 1 << 20,
                                     .file_mode = 0600 };
    ps_cnc_t *cnc = NULL;
    CHECK_EQ(ps_cnc_create(&params, &cnc), PS_OK);
    snprintf(path, sizeof path, "%s/cnc.dat", directory);
    const int64_t before = memory_of(path);
    CHECK(before < 6 << 20);
    int32_t id = 0;
    while (id < PS_COUNTERS_BACKED - 2) {
        id = ps_counter_allocate(cnc, 1, "", 0, "more", 4, 1, 1, 1, 7, 0);
        CHECK(id > 0);
    }
    CHECK_EQ(memory_of(path), before); /* the first unused record is there too */
    CHECK_EQ(ps_counter_allocate(cnc, 1, "", 0, "more", 4, 1, 1, 1, 7, 0), id + 1);
    const int64_t step = PS_COUNTERS_BACKED * (PS_COUNTER_META_BYTES + PS_COUNTER_VALUE_BYTES);
    CHECK(memory_of(path) >= before + step - 8192 && memory_of(path) <= before + step + 8192);
    ps_cnc_close(cnc);
    CHECK_EQ(ps_cnc_open(directory, 0, &cnc), PS_OK); /* a new daemon goes on */
    CHECK_EQ(ps_counter_allocate(cnc, 1, "", 0, "more", 4, 1, 1, 1, 7, 0), id + 2);
    CHECK(memory_of(path) <= before + step + 8192);
    CHECK_EQ(ps_counter_get(cnc, id), 7);
    CHECK_EQ(unlink(path), 0); /* no more memory can be had, what is there is used up first */
    const int32_t last = 2 * PS_COUNTERS_BACKED - 2;
    for (id += 3; id <= last; id++) {
        CHECK_EQ(ps_counter_allocate(cnc, 1, "", 0, "more", 4, 1, 1, 1, 7, 0), id);
    }
    CHECK_EQ(ps_counter_allocate(cnc, 1, "", 0, "more", 4, 1, 1, 1, 7, 0), PS_E_SYSTEM);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static void system_counters_have_their_ids_and_labels(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    ps_counter_info_t info;
    for (int32_t id = 0; id < 46; id++) {
        ps_counter_read(cnc, id, &info);
        CHECK_EQ(info.state, 1);
        CHECK_EQ(info.type_id, 0);
        CHECK_EQ(info.registration_id, id);
        CHECK_EQ(info.owner_id, -1);
        int32_t key = -1;
        memcpy(&key, info.key, 4);
        CHECK_EQ(key, id);
    }
    ps_counter_read(cnc, 18, &info);
    CHECK_EQ(strcmp(info.label, "Sender flow control limits, i.e. back-pressure events"), 0);
    ps_counter_read(cnc, 34, &info);
    CHECK_EQ(strncmp(info.label, "Aeron software: version=", 24), 0);
    CHECK_EQ(info.value, 256);
    ps_counter_read(cnc, 46, &info);
    CHECK_EQ(info.state, 0);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static int32_t counter(ps_cnc_t *cnc, int64_t now_ms)
{
    return ps_counter_allocate(cnc, 1001, "key", 3, "label", 5, 71, 72, 73, 74, now_ms);
}

static void freed_counters_cool_down_before_reuse(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    CHECK_EQ(counter(cnc, 0), 46);
    CHECK_EQ(counter(cnc, 0), 47);
    ps_counter_free(cnc, 47, 100);
    ps_counter_free(cnc, 46, 200);
    ps_counter_free(cnc, 46, 200); /* once is enough */
    ps_counter_info_t info;
    ps_counter_read(cnc, 46, &info);
    CHECK_EQ(info.state, -1);
    CHECK_EQ(info.key[0], 0);
    CHECK_EQ(info.value, 74); /* stays until reuse */
    CHECK_EQ(counter(cnc, 1099), 48);
    ps_cnc_close(cnc);
    CHECK_EQ(ps_cnc_open(directory, 0, &cnc), PS_OK); /* adopted: the file remembers */
    CHECK_EQ(counter(cnc, 1200), 46);
    CHECK_EQ(counter(cnc, 1200), 47);
    CHECK_EQ(counter(cnc, 1200), 49);
    int32_t last = 0;
    while (last >= 0) {
        last = counter(cnc, 1200);
    }
    CHECK_EQ(last, PS_E_NO_SPACE);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static void keys_and_labels_are_cut(void)
{
    char directory[256];
    char text[600];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    memset(text, 'x', sizeof text);
    const int32_t id = ps_counter_allocate(cnc, 5, text, 600, text, 600, 1, 2, 3, 4, 0);
    ps_counter_info_t info;
    ps_counter_read(cnc, id, &info);
    CHECK_EQ(info.label_length, 380);
    CHECK_EQ(info.label[380], 0);
    CHECK_EQ(info.reference_id, 3);
    cnc->metadata[id].label_length = INT32_MAX; /* hostile */
    ps_counter_read(cnc, id, &info);
    CHECK_EQ(info.label_length, 380);
    ps_counter_read(cnc, 1 << 30, &info);
    CHECK_EQ(info.state, 0);
    ps_counter_set(cnc, -1, 5);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

/* Adds errors until the log takes no more; returns the bytes that they took, to half a KiB. */
static int32_t errors_until_full(ps_cnc_t *cnc, int32_t stranger)
{
    char text[488 + 1];
    int32_t bytes = 0;
    for (int32_t i = 0;; i++) {
        snprintf(text, sizeof text, "%d %-480d", stranger, i);
        memset(text + 20, 'x', sizeof text - 21);
        text[sizeof text - 1] = '\0';
        const int code = ps_cnc_log_error(cnc, 40, stranger, text);
        if (code != PS_OK) {
            CHECK_EQ(code, PS_E_NO_SPACE);
            return (bytes + 1023) & ~1023;
        }
        bytes += 24 + 488;
    }
}

static void errors_are_kept_once_each(void)
{
    char directory[256];
    char text[64];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    CHECK_EQ(ps_cnc_log_error(cnc, 10, 0, "first"), PS_OK);
    CHECK_EQ(ps_cnc_log_error(cnc, 20, 1, "second one"), PS_OK);
    CHECK_EQ(ps_cnc_log_error(cnc, 30, 1, "first"), PS_OK);
    int64_t count = 0;
    int64_t first_ms = 0;
    int64_t last_ms = 0;
    CHECK_EQ(ps_cnc_read_error(cnc, 0, &count, &first_ms, &last_ms, text, 64), 1);
    CHECK_EQ(strcmp(text, "first"), 0);
    CHECK_EQ(count, 2);
    CHECK_EQ(first_ms, 10);
    CHECK_EQ(last_ms, 30);
    CHECK_EQ(ps_cnc_read_error(cnc, 1, &count, &first_ms, &last_ms, text, 7), 1);
    CHECK_EQ(strcmp(text, "second"), 0);
    CHECK_EQ(ps_cnc_read_error(cnc, 2, &count, &first_ms, &last_ms, text, 64), 0);
    /* Strangers have half of the log, this host's errors the rest. */
    CHECK_EQ(errors_until_full(cnc, 1), cnc->error_log_length / 2);
    CHECK_EQ(errors_until_full(cnc, 0), cnc->error_log_length / 2);
    const int32_t impossible = INT32_MAX;
    memcpy(cnc->error_log, &impossible, 4);
    CHECK_EQ(ps_cnc_read_error(cnc, 0, &count, &first_ms, &last_ms, text, 64), 0);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static const char CHANNEL[] = "aeron:udp?endpoint=h:1";

static int lose(ps_cnc_t *cnc, int64_t epoch_ms, int64_t bytes, int32_t gaps, const char *source)
{
    const ps_loss_t loss = { .epoch_ms = epoch_ms,
                             .bytes = bytes,
                             .gaps = gaps,
                             .session_id = 1,
                             .stream_id = 2,
                             .channel = CHANNEL,
                             .source = source };
    return ps_cnc_report_loss(cnc, &loss);
}

static void losses_add_up_by_stream_and_source(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    CHECK_EQ(lose(cnc, 10, 100, 3, "a:1"), PS_OK);
    CHECK_EQ(lose(cnc, 11, 50, 4, "a:1"), PS_OK);
    /* A gap that grew is no observation more, and -1 gap is none. */
    CHECK_EQ(lose(cnc, 11, 10, 0, "a:1"), PS_OK);
    CHECK_EQ(lose(cnc, 13, 9, -1, "a:1"), PS_E_INVALID);
    CHECK_EQ(lose(cnc, 12, 7, 0, "b:1"), PS_OK);
    int64_t numbers[4];
    memcpy(numbers, cnc->loss_report, sizeof numbers);
    CHECK_EQ(numbers[0], 7);
    CHECK_EQ(numbers[1], 160);
    CHECK_EQ(numbers[2], 10);
    CHECK_EQ(numbers[3], 11);
    /* 44 + 24 + 4 + 3 bytes: the next entry is 128 further. */
    memcpy(numbers, cnc->loss_report + 128, sizeof numbers);
    CHECK_EQ(numbers[0], 1);
    CHECK_EQ(numbers[1], 7);
    CHECK_EQ(memcmp(cnc->loss_report + 128 + 44 + 24 + 4, "b:1", 3), 0);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

/* Entries, bytes and observations that the report has for one source, or for all sources (NULL). */
typedef struct losses {
    int64_t entries, bytes, observations;
} losses_t;

static losses_t losses_of(const ps_cnc_t *cnc, const char *source)
{
    losses_t sum = { 0, 0, 0 };
    for (uint64_t at = 0; at + 48 <= cnc->loss_report_length;) {
        int64_t numbers[2];
        int32_t lengths[2];
        memcpy(numbers, cnc->loss_report + at, sizeof numbers);
        if (numbers[0] == 0) {
            break;
        }
        memcpy(&lengths[0], cnc->loss_report + at + 40, 4);
        const uint64_t text = at + 44 + (uint64_t)((lengths[0] + 3) & ~3);
        memcpy(&lengths[1], cnc->loss_report + text, 4);
        if (source == NULL || ((size_t)lengths[1] == strlen(source) &&
                               memcmp(cnc->loss_report + text + 4, source, strlen(source)) == 0)) {
            sum.entries++;
            sum.bytes += numbers[1];
            sum.observations += numbers[0];
        }
        at = (text + 4 + (uint64_t)lengths[1] + 63) & ~UINT64_C(63);
    }
    return sum;
}

/* `host` invents sessions: each loses 64 bytes in one gap. */
static void flood(ps_cnc_t *cnc, const char *host, int32_t sessions, int32_t settled)
{
    char source[64];
    for (int32_t i = 0; i < sessions; i++) {
        snprintf(source, sizeof source, "%s:%d", host, 1 + i % 60000);
        const ps_loss_t loss = { .epoch_ms = 5,
                                 .bytes = 64,
                                 .gaps = 1,
                                 .session_id = 1000 + i,
                                 .stream_id = 2,
                                 .settled = settled,
                                 .channel = CHANNEL,
                                 .source = source };
        CHECK_EQ(ps_cnc_report_loss(cnc, &loss), PS_OK);
    }
}

static void sessions_of_one_host_share_an_entry(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    flood(cnc, "10.0.0.9", 20000, 0);
    CHECK_EQ(losses_of(cnc, NULL).entries, PS_LOSS_SESSIONS + 1);
    CHECK_EQ(losses_of(cnc, "10.0.0.9").observations, 20000 - PS_LOSS_SESSIONS);
    /* A host whose name another one begins with, and one with colons of its own. */
    flood(cnc, "10.0.0.90", 20, 0);
    flood(cnc, "[fe80::1]", 20, 0);
    CHECK_EQ(losses_of(cnc, "10.0.0.90").observations, 20 - PS_LOSS_SESSIONS);
    CHECK_EQ(losses_of(cnc, "[fe80::1]").observations, 20 - PS_LOSS_SESSIONS);
    CHECK_EQ(losses_of(cnc, NULL).bytes, 64 * 20040);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static void many_hosts_leave_room_for_settled_streams(void)
{
    char directory[256];
    char host[64];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    for (int32_t i = 0; i < 20000; i++) {
        snprintf(host, sizeof host, "10.%d.%d.%d", 1 + i / 62500, i / 250 % 250, i % 250);
        flood(cnc, host, 1, 0);
    }
    const losses_t before = losses_of(cnc, NULL);
    CHECK(before.entries <= 1024 + 1);
    CHECK_EQ(before.observations, 20000);
    CHECK_EQ(losses_of(cnc, "other sources").observations, 20000 - before.entries + 1);
    flood(cnc, "192.168.0.1", PS_LOSS_SESSIONS, 1);
    CHECK_EQ(losses_of(cnc, NULL).entries, before.entries + PS_LOSS_SESSIONS);
    CHECK_EQ(losses_of(cnc, "192.168.0.1:1").bytes, 64);
    /* A daemon that adopts the directory knows the bounds from the file. */
    ps_cnc_t *adopted = NULL;
    CHECK_EQ(ps_cnc_open(directory, 0, &adopted), PS_OK);
    flood(adopted, "172.16.0.1", 100, 0);
    flood(adopted, "192.168.0.1", 100, 1);
    CHECK_EQ(losses_of(cnc, NULL).entries, before.entries + PS_LOSS_SESSIONS + 1);
    CHECK_EQ(losses_of(cnc, "192.168.0.1").observations, 100 - PS_LOSS_SESSIONS);
    ps_cnc_close(adopted);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static void a_full_report_still_counts_every_loss(void)
{
    char directory[256];
    char channel[512];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    ps_loss_t loss = { .epoch_ms = 5, .bytes = 64, .gaps = 1, .settled = 1, .source = "a:1" };
    loss.channel = channel;
    for (int32_t i = 0; i < 4000; i++) { /* local clients choose the channels */
        snprintf(channel, sizeof channel, "aeron:udp?endpoint=h:%d|alias=%-400d", i, i);
        CHECK_EQ(ps_cnc_report_loss(cnc, &loss), PS_OK);
    }
    CHECK_EQ(losses_of(cnc, NULL).bytes, 64 * 4000);
    CHECK(losses_of(cnc, "other sources").entries > 1);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

/* ---- an Aeron client's commands -------------------------------------------------------------- */

/* Writes a record as a client does, payload {client id, correlation id, more}. */
static void command(ps_cnc_t *cnc, int32_t type, int64_t correlation_id, int32_t payload)
{
    _Atomic int64_t *tail = ps_ring_field(cnc, PS_RING_TAIL);
    const int64_t required = (payload + 8 + 7) & ~7;
    int64_t at = atomic_load(tail);
    const int64_t to_end = cnc->ring_capacity - (at & (cnc->ring_capacity - 1));
    if (required > to_end) {
        uint8_t *record = cnc->ring + (at & (cnc->ring_capacity - 1));
        const int32_t padding[2] = { (int32_t)to_end, -1 };
        memcpy(record, padding, 8);
        at += to_end;
    }
    uint8_t *record = cnc->ring + (at & (cnc->ring_capacity - 1));
    const int32_t head[2] = { payload + 8, type };
    memcpy(record, head, 8);
    if (payload >= 16) {
        const int64_t ids[2] = { 5, correlation_id };
        memcpy(record + 8, ids, 16);
    }
    atomic_store(tail, at + required);
}

static void commands_are_answered_with_not_supported(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    const uint8_t *end = cnc->broadcast + cnc->broadcast_capacity;
    command(cnc, 1, 17, 60);
    command(cnc, 0x0B, -1, 16); /* expects no reply */
    command(cnc, 4, 18, 44);
    command(cnc, 99, 0, 3); /* too short to have a correlation id */
    CHECK_EQ(ps_cnc_answer_commands(cnc, "not served"), 4);
    int64_t trailer[3];
    memcpy(trailer, end, sizeof trailer);
    CHECK_EQ(trailer[0], 80); /* intent: two records of 8 + 16 + 10 bytes, aligned */
    CHECK_EQ(trailer[1], 80);
    CHECK_EQ(trailer[2], 40);
    int32_t head[2];
    int64_t correlation = 0;
    int32_t code[2];
    memcpy(head, cnc->broadcast + 40, 8);
    memcpy(&correlation, cnc->broadcast + 48, 8);
    memcpy(code, cnc->broadcast + 56, 8);
    CHECK_EQ(head[0], 34);
    CHECK_EQ(head[1], 0x0F01);
    CHECK_EQ(correlation, 18);
    CHECK_EQ(code[0], 8);
    CHECK_EQ(code[1], 10);
    CHECK_EQ(memcmp(cnc->broadcast + 64, "not served", 10), 0);
    CHECK_EQ(atomic_load(ps_ring_field(cnc, PS_RING_HEAD)),
             atomic_load(ps_ring_field(cnc, PS_RING_TAIL)));
    for (int32_t i = 0; i < 256; i++) {
        CHECK_EQ(cnc->ring[i], 0); /* zeroed before the head moved */
    }
    CHECK_EQ(ps_cnc_answer_commands(cnc, "not served"), 0);
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static void both_buffers_wrap(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    for (int64_t i = 0; i < 60000; i++) {
        command(cnc, 1, i, 52);
        int32_t answered = ps_cnc_answer_commands(cnc, "a reason of odd length.");
        answered += answered == 0 ? ps_cnc_answer_commands(cnc, "a reason of odd length.") : 0;
        CHECK_EQ(answered, 1); /* a padding record at the end takes a second call */
        const uint8_t *end = cnc->broadcast + cnc->broadcast_capacity;
        int64_t latest = 0;
        int64_t correlation = -1;
        memcpy(&latest, end + 16, 8);
        memcpy(&correlation, cnc->broadcast + (latest & (cnc->broadcast_capacity - 1)) + 8, 8);
        CHECK_EQ(correlation, i);
    }
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static void hostile_records_do_not_lead_outside(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    const int32_t lengths[] = { 1, 7, INT32_MAX, 1 << 20, (1 << 20) + 8, -5, INT32_MIN };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t head = atomic_load(ps_ring_field(cnc, PS_RING_HEAD));
        const int32_t record[2] = { lengths[i], 1 };
        memcpy(cnc->ring + (head & (cnc->ring_capacity - 1)), record, 8);
        CHECK(ps_cnc_answer_commands(cnc, "x") <= 1);
    }
    atomic_store(ps_ring_field(cnc, PS_RING_HEAD), INT64_C(0x123456789abcdef));
    ps_cnc_answer_commands(cnc, "x");
    atomic_store((_Atomic int64_t *)(void *)(cnc->broadcast + cnc->broadcast_capacity + 8), -7);
    atomic_store(ps_ring_field(cnc, PS_RING_HEAD), 0);
    memset(cnc->ring, 0, 64);
    command(cnc, 1, 3, 60);
    ps_cnc_answer_commands(cnc, "x");
    ps_cnc_close(cnc);
    directory_remove(directory);
}

static void refuse_header(const char *directory, off_t at, int32_t value, int code)
{
    char path[300];
    snprintf(path, sizeof path, "%s/cnc.dat", directory);
    const int fd = open(path, O_RDWR);
    int32_t old = 0;
    CHECK_EQ(pread(fd, &old, 4, at), 4);
    CHECK_EQ(pwrite(fd, &value, 4, at), 4);
    ps_cnc_t *cnc = NULL;
    CHECK_EQ(ps_cnc_open(directory, 1, &cnc), code);
    CHECK_EQ(pwrite(fd, &old, 4, at), 4);
    close(fd);
}

static void damaged_files_are_refused(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    ps_cnc_t *cnc = cnc_make(directory);
    refuse_header(directory, 0, 0, PS_E_VERSION);
    refuse_header(directory, 0, 0x300, PS_E_VERSION);
    refuse_header(directory, 0, 0x10200, PS_E_VERSION);
    const int32_t values[] = { 0, -1, 1, INT32_MAX, INT32_MIN, 1 << 20 };
    for (off_t at = 4; at <= 16; at += 4) {
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            refuse_header(directory, at, values[i], PS_E_CORRUPT);
        }
    }
    refuse_header(directory, 20, -8, PS_E_CORRUPT);
    refuse_header(directory, 20, INT32_MAX - 7, PS_E_CORRUPT);
    ps_cnc_close(cnc);
    directory_remove(directory);
    CHECK_EQ(ps_cnc_open(directory, 1, &cnc), PS_E_SYSTEM);
}

int main(void)
{
    RUN(the_layout_is_the_reference);
    RUN(memory_is_taken_as_counters_are);
    RUN(system_counters_have_their_ids_and_labels);
    RUN(freed_counters_cool_down_before_reuse);
    RUN(keys_and_labels_are_cut);
    RUN(errors_are_kept_once_each);
    RUN(losses_add_up_by_stream_and_source);
    RUN(sessions_of_one_host_share_an_entry);
    RUN(many_hosts_leave_room_for_settled_streams);
    RUN(a_full_report_still_counts_every_loss);
    RUN(commands_are_answered_with_not_supported);
    RUN(both_buffers_wrap);
    RUN(hostile_records_do_not_lead_outside);
    RUN(damaged_files_are_refused);
    return 0;
}
