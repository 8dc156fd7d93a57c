/* SPDX-License-Identifier: Apache-2.0
 * ps_cnc.c: cnc.dat and loss-report.dat: making, mapping, identity, heartbeat
 * (docs/spec/shared-memory.md section 2).  Conductor thread; tools map read-only. */
#include "ps_set_up.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ps_cnc_internal.h"
#include "ps_error.h"
#include "ps_file.h"

enum { PS_PAGE = 4096, PS_SYSTEM_COUNTERS = 46, PS_CONTROL_PROTOCOL = 0 };

static const char ps_cnc_name[] = "cnc.dat";
static const char ps_loss_name[] = "loss-report.dat";

static const char *const ps_system_labels[PS_SYSTEM_COUNTERS] = {
    "Bytes sent",
    "Bytes received",
    "Failed offers to ReceiverProxy",
    "Failed offers to SenderProxy",
    "Failed offers to DriverConductorProxy",
    "NAKs sent",
    "NAKs received",
    "Status Messages sent",
    "Status Messages received",
    "Heartbeats sent",
    "Heartbeats received",
    "Retransmits sent",
    "Flow control under runs",
    "Flow control over runs",
    "Invalid packets",
    "Errors: version=%s commit=penstock",
    "Short sends",
    "Failed attempts to free log buffers",
    "Sender flow control limits, i.e. back-pressure events",
    "Unblocked Publications",
    "Unblocked Control Commands",
    "Possible TTL Asymmetry",
    "ControllableIdleStrategy status",
    "Loss gap fills",
    "Client liveness timeouts",
    "Resolution changes: driverName=penstock",
    "Conductor max cycle time doing its work in ns: penstock",
    "Conductor work cycle exceeded threshold count: threshold=0ns penstock",
    "Sender max cycle time doing its work in ns: penstock",
    "Sender work cycle exceeded threshold count: threshold=0ns penstock",
    "Receiver max cycle time doing its work in ns: penstock",
    "Receiver work cycle exceeded threshold count: threshold=0ns penstock",
    "NameResolver max time in ns",
    "NameResolver exceeded threshold count: threshold=0ns",
    "Aeron software: version=%s commit=penstock",
    "Bytes currently mapped",
    "Retransmitted bytes",
    "Retransmit Pool Overflow count",
    "Error Frames received",
    "Error Frames sent",
    "Publications Revoked",
    "Publication Images Revoked",
    "Images rejected",
    "Control protocol version",
    "Status Messages rejected",
    "Failed offers to NativeResourceAgentProxy",
};

/* Fills pointers from checked lengths. */
static ps_cnc_t *ps_cnc_attach(uint8_t *base, uint64_t length, const ps_cnc_header_t *header,
                               int32_t read_only)
{
    ps_cnc_t *cnc = calloc(1, sizeof *cnc);
    if (cnc == NULL) {
        ps_fail(PS_E_NO_MEMORY, "no memory for a handle of %s", ps_cnc_name);
        return NULL;
    }
    cnc->base = base;
    cnc->length = length;
    cnc->header = (void *)base;
    uint8_t *at = base + PS_CNC_HEADER_BYTES;
    cnc->ring = at;
    cnc->ring_capacity = header->to_driver_length - PS_CNC_RING_TRAILER;
    at += header->to_driver_length;
    cnc->broadcast = at;
    cnc->broadcast_capacity = header->to_clients_length - PS_CNC_BROADCAST_TRAILER;
    at += header->to_clients_length;
    cnc->metadata = (void *)at;
    at += header->counter_metadata_length;
    cnc->values = (void *)at;
    cnc->counters = header->counter_values_length / PS_COUNTER_VALUE_BYTES;
    at += header->counter_values_length;
    cnc->error_log = at;
    cnc->error_log_length = header->error_log_length;
    cnc->read_only = read_only;
    return cnc;
}

static int64_t ps_cnc_sum(const ps_cnc_header_t *header)
{
    return INT64_C(128) + header->to_driver_length + header->to_clients_length +
           header->counter_metadata_length + header->counter_values_length +
           header->error_log_length;
}

static void ps_system_counters(ps_cnc_t *cnc, const ps_cnc_params_t *params, int64_t mapped)
{
    for (int32_t id = 0; id < PS_SYSTEM_COUNTERS; id++) {
        char label[PS_COUNTER_LABEL_BYTES];
        const char *text = ps_system_labels[id];
        const char *hole = strstr(text, "%s");
        if (hole != NULL) {
            snprintf(label, sizeof label, "%.*s%s%s", (int)(hole - text), text, ps_version(),
                     hole + 2);
        } else {
            snprintf(label, sizeof label, "%s", text);
        }
        const int64_t value = id == 34                    ? params->software_version
                              : id == PS_SYS_BYTES_MAPPED ? mapped
                              : id == 43                  ? PS_CONTROL_PROTOCOL
                                                          : 0;
        ps_counter_allocate(cnc, 0, &id, sizeof id, label, (int32_t)strlen(label), id, -1, 0, value,
                            params->start_ms);
    }
}

static int ps_cnc_make(const ps_cnc_params_t *params, const char *path, const char *loss_path,
                       ps_cnc_t **out)
{
    ps_cnc_header_t plan;
    memset(&plan, 0, sizeof plan);
    plan.to_driver_length = PS_CNC_RING_BYTES + PS_CNC_RING_TRAILER;
    plan.to_clients_length = PS_CNC_RING_BYTES + PS_CNC_BROADCAST_TRAILER;
    plan.counter_metadata_length = 4 * params->counter_values_bytes;
    plan.counter_values_length = params->counter_values_bytes;
    plan.error_log_length = params->error_log_bytes;
    plan.client_liveness_timeout_ns = params->client_liveness_timeout_ns;
    plan.start_ms = params->start_ms;
    plan.pid = params->pid;
    plan.page_size = PS_PAGE;
    const int64_t length = ps_cnc_align(ps_cnc_sum(&plan), PS_PAGE);
    if (length > INT32_MAX) {
        return ps_fail(PS_E_INVALID, "%s would have %lld bytes, at most 2^31 - 1", path,
                       (long long)length);
    }
    uint8_t *base = NULL;
    const int64_t metadata_at =
        PS_CNC_HEADER_BYTES + plan.to_driver_length + plan.to_clients_length;
    const int64_t values_at = metadata_at + plan.counter_metadata_length;
    const int64_t counters = plan.counter_values_length / PS_COUNTER_VALUE_BYTES;
    const int64_t backed = counters < PS_COUNTERS_BACKED ? counters : PS_COUNTERS_BACKED;
    const ps_file_range_t holes[] = {
        { metadata_at + backed * PS_COUNTER_META_BYTES, values_at },
        { values_at + backed * PS_COUNTER_VALUE_BYTES, values_at + plan.counter_values_length },
    };
    int code = ps_file_make(path, length, params->file_mode, holes, 2, &base);
    if (code != PS_OK) {
        return code;
    }
    ps_cnc_t *cnc = ps_cnc_attach(base, (uint64_t)length, &plan, 0);
    if (cnc == NULL) {
        ps_file_unmap(base, (uint64_t)length);
        return PS_E_NO_MEMORY;
    }
    snprintf(cnc->path, sizeof cnc->path, "%s", path);
    cnc->backed = (int32_t)backed;
    memcpy(base, &plan, sizeof plan); /* version still 0 */
    code = ps_file_make(loss_path, PS_LOSS_REPORT_BYTES, params->file_mode, NULL, 0,
                        &cnc->loss_report);
    if (code != PS_OK) {
        ps_cnc_close(cnc);
        return code;
    }
    cnc->loss_report_length = PS_LOSS_REPORT_BYTES;
    ps_system_counters(cnc, params, length + PS_LOSS_REPORT_BYTES);
    ps_cnc_next_id(cnc); /* 0 is never an id */
    ps_cnc_heartbeat(cnc, params->start_ms);
    /* Release: who sees the version sees the rest. */
    atomic_store_explicit(&cnc->header->version, PS_CNC_VERSION, memory_order_release);
    *out = cnc;
    return PS_OK;
}

int ps_cnc_create(const ps_cnc_params_t *params, ps_cnc_t **out)
{
    *out = NULL;
    const int32_t values = params->counter_values_bytes;
    if (values < PS_SYSTEM_COUNTERS * PS_COUNTER_VALUE_BYTES || values > 400 * 1024 * 1024 ||
        values % PS_COUNTER_VALUE_BYTES != 0) {
        return ps_fail(PS_E_INVALID, "counter values of %d bytes: a multiple of 128 in %d..%d",
                       values, PS_SYSTEM_COUNTERS * PS_COUNTER_VALUE_BYTES, 400 * 1024 * 1024);
    }
    if (params->error_log_bytes < PS_PAGE || params->error_log_bytes % 128 != 0) {
        return ps_fail(PS_E_INVALID, "error log of %d bytes: a multiple of 128 from 4096 on",
                       params->error_log_bytes);
    }
    char path[PS_PATH_BYTES];
    char loss_path[PS_PATH_BYTES];
    int code = ps_file_join(path, params->directory, ps_cnc_name);
    if (code == PS_OK) {
        code = ps_file_join(loss_path, params->directory, ps_loss_name);
    }
    if (code != PS_OK) {
        return code;
    }
    if (access(path, F_OK) == 0) {
        return ps_fail(PS_E_SYSTEM, "%s exists already", path);
    }
    code = ps_cnc_make(params, path, loss_path, out);
    if (code != PS_OK) {
        unlink(path);
    }
    return code;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int ps_is_capacity(int64_t value)
{
    return value >= 4096 && (value & (value - 1)) == 0;
}

static int ps_cnc_check(const ps_cnc_header_t *header, uint64_t length, const char *path)
{
    if ((header->version >> 16) != 0 || ((header->version >> 8) & 0xff) != 2) {
        return ps_fail(PS_E_VERSION, "%s: version 0x%x, not 0.2 (0: not ready)", path,
                       (unsigned)header->version);
    }
    if (!ps_is_capacity((int64_t)header->to_driver_length - PS_CNC_RING_TRAILER) ||
        !ps_is_capacity((int64_t)header->to_clients_length - PS_CNC_BROADCAST_TRAILER) ||
        header->counter_values_length < PS_COUNTER_VALUE_BYTES ||
        header->counter_values_length % PS_COUNTER_VALUE_BYTES != 0 ||
        (int64_t)header->counter_metadata_length != INT64_C(4) * header->counter_values_length ||
        header->error_log_length < 0 || header->error_log_length % 8 != 0 ||
        ps_cnc_sum(header) > (int64_t)length) {
        return ps_fail(PS_E_CORRUPT, "%s: impossible region lengths", path);
    }
    return PS_OK;
}

int ps_cnc_open(const char *directory, int32_t read_only, ps_cnc_t **out)
{
    *out = NULL;
    char path[PS_PATH_BYTES];
    char loss_path[PS_PATH_BYTES];
    int code = ps_file_join(path, directory, ps_cnc_name);
    if (code == PS_OK) {
        code = ps_file_join(loss_path, directory, ps_loss_name);
    }
    uint8_t *base = NULL;
    uint64_t length = 0;
    if (code == PS_OK) {
        code = ps_file_map(path, read_only, PS_CNC_HEADER_BYTES, &base, &length);
    }
    if (code != PS_OK) {
        return code;
    }
    ps_cnc_header_t copy;
    /* Acquire pairs with the release of the version in ps_cnc_make. */
    const int32_t version =
        atomic_load_explicit(&((ps_cnc_header_t *)(void *)base)->version, memory_order_acquire);
    memcpy(&copy, base, sizeof copy);
    atomic_init(&copy.version, version);
    code = ps_cnc_check(&copy, length, path);
    ps_cnc_t *cnc = code == PS_OK ? ps_cnc_attach(base, length, &copy, read_only) : NULL;
    if (cnc == NULL) {
        ps_file_unmap(base, length);
        return code != PS_OK ? code : PS_E_NO_MEMORY;
    }
    snprintf(cnc->path, sizeof cnc->path, "%s", path);
    /* The loss report is only for tools; a directory works without it. */
    if (ps_file_map(loss_path, read_only, 64, &cnc->loss_report, &cnc->loss_report_length) !=
        PS_OK) {
        cnc->loss_report = NULL;
        cnc->loss_report_length = 0;
    }
    *out = cnc;
    return PS_OK;
}

void ps_cnc_adopt(ps_cnc_t *cnc, int64_t pid, int64_t start_ms)
{
    cnc->alive_until_ms = ps_cnc_get_heartbeat(cnc);
    cnc->header->pid = pid;
    cnc->header->start_ms = start_ms;
    ps_cnc_heartbeat(cnc, start_ms);
}

int64_t ps_cnc_alive_until(const ps_cnc_t *cnc)
{
    return cnc->alive_until_ms;
}

void ps_cnc_close(ps_cnc_t *cnc)
{
    if (cnc != NULL) {
        ps_file_unmap(cnc->loss_report, cnc->loss_report_length);
        ps_file_unmap(cnc->base, cnc->length);
        free(cnc->freed);
        free(cnc);
    }
}

/* ---- identity -------------------------------------------------------------------------------- */

void ps_cnc_heartbeat(ps_cnc_t *cnc, int64_t epoch_ms)
{
    atomic_store_explicit(ps_ring_field(cnc, PS_RING_HEARTBEAT), epoch_ms, memory_order_release);
}

int64_t ps_cnc_get_heartbeat(const ps_cnc_t *cnc)
{
    return atomic_load_explicit(ps_ring_field(cnc, PS_RING_HEARTBEAT), memory_order_acquire);
}

int64_t ps_cnc_pid(const ps_cnc_t *cnc)
{
    return cnc->header->pid;
}

int64_t ps_cnc_start_ms(const ps_cnc_t *cnc)
{
    return cnc->header->start_ms;
}

int64_t ps_cnc_next_id(ps_cnc_t *cnc)
{
    return atomic_fetch_add_explicit(ps_ring_field(cnc, PS_RING_CORRELATION), 1,
                                     memory_order_relaxed);
}
