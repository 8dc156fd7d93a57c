/* SPDX-License-Identifier: Apache-2.0
 *
 * penstock.h: the data path of a penstock client.
 *
 * A client process maps a daemon's directory, then publishes with offer and receives with poll
 * without any system call in steady state. The client adds publications and subscriptions in
 * Python, by requests on the daemon's control socket. The daemon's answers contain the parameters
 * of the _open functions below.
 *
 * Threads: a ps_client_t may be shared by threads. Several threads and processes may offer to a
 * shared publication. Only one thread at a time may use an exclusive publication, a subscription or
 * an image.
 *
 * Errors: functions of type int return 0 or a negative ps_error_code; ps_last_error() has the text
 * for the calling thread. Functions that return a position return a value > 0, or a negative
 * ps_offer_code or ps_error_code.
 *
 * This header is also the cffi declaration: it uses only plain C types and enums, and its macros
 * carry no meaning.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#include "ps_credit_view.h"
#include "ps_pressure_view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- results --------------------------------------------------------------------------------- */

/* Reasons to refuse an offer. -1..-6 are Aeron's values; those of penstock are <= -100
 * (docs/spec/rules.md section 5). */
enum ps_offer_code {
    PS_NOT_CONNECTED = -1,         /* no receiver; retry when one joins */
    PS_BACK_PRESSURED = -2,        /* position reached the publisher limit; retry */
    PS_ADMIN_ACTION = -3,          /* term rotation in progress; retry at once */
    PS_CLOSED = -4,                /* the publication was closed */
    PS_MAX_POSITION_EXCEEDED = -5, /* 2^31 terms used; make a new publication */
    PS_OFFER_ERROR = -6,           /* see ps_last_error() */
    PS_NO_CREDIT = -100,
    PS_THROTTLED = -101,
    PS_RATE_LIMITED = -102,
    PS_DROPPED = -103,
    PS_FAILED = -104,
    PS_STORAGE = -105,    /* a term could not be reserved: no space */
    PS_DAEMON_AWAY = -106 /* the daemon died; offers resume when a new daemon adopts the stream */
};

/* Codes of misuse and failures. Back pressure has no code here. */
enum ps_error_code {
    PS_OK = 0,
    PS_E_INVALID = -1001,  /* an argument is out of range */
    PS_E_TOO_LONG = -1002, /* message longer than the stream's limit */
    PS_E_NO_MEMORY = -1003,
    PS_E_SYSTEM = -1004,  /* a system call failed; errno is in the text */
    PS_E_VERSION = -1005, /* the file has another version, or is not a file of penstock */
    PS_E_CORRUPT = -1006, /* shared memory holds an impossible value */
    PS_E_TIMEOUT = -1007,
    PS_E_INTERRUPTED = -1008, /* a signal arrived while waiting */
    PS_E_FORKED = -1009,      /* handle used in a child of the process that opened it */
    PS_E_NO_SPACE = -1010,    /* file system or slot table full */
    PS_E_AGAIN = -1011,       /* bounded queue full: repeat later */
    /* the daemon padded over this claim: it will not be delivered */
    PS_E_UNBLOCKED = -1012,
    PS_E_ADDRESS_IN_USE = -1013,
    PS_E_NO_INTERFACE = -1014,
    PS_E_NO_BUFFER = -1015, /* socket buffer smaller than requested */
    PS_E_PERMISSION = -1016,
    PS_E_GAP = -1017 /* the poll reached a gap: ps_img_take_gap */
};

/* Returns the text of the calling thread's last failure, "" if none. Valid until the thread's next
 * failure. */
const char *ps_last_error(void);

/* Version of the library, "major.minor.patch". */
const char *ps_version(void);

/* ---- client ---------------------------------------------------------------------------------- */

typedef struct ps_client ps_client_t;

typedef struct ps_client_params {
    const char *directory;    /* daemon directory */
    int64_t client_id;        /* received from the daemon over lease.sock */
    int32_t client_slot;      /* index into penstock.dat's client slots */
    int32_t sender_wake_fd;   /* eventfd of the sender thread, borrowed; -1: none */
    int32_t receiver_wake_fd; /* eventfd of the receiver thread, borrowed; -1: none */
    int32_t watch_fd;         /* eventfd for ps_client_watch, borrowed; -1: none */
} ps_client_params_t;

/* Maps cnc.dat and penstock.dat read-write.  PS_E_VERSION, PS_E_SYSTEM, PS_E_NO_MEMORY. */
int ps_client_open(const ps_client_params_t *params, ps_client_t **out);
/* Unmaps the files. Close all handles of the client before this call. NULL is allowed. */
void ps_client_close(ps_client_t *client);

/* Marks the daemon as gone (1) or as running (0). While the daemon is gone, offers return
 * PS_DAEMON_AWAY. Any thread. */
void ps_client_set_daemon_away(ps_client_t *client, int32_t away);

/* Waiting. A thread takes a ticket, checks its condition, and sleeps if the condition is false.
 * Any event after the ticket ends the sleep. A wake-up is a change of the client's futex word. The
 * daemon changes the word when an image of the client gets data, and when the control plane has a
 * notice. While the client waits for room, the daemon also changes the word when the publisher
 * limit rises. ps_client_wake() changes the word from inside the process. */
uint32_t ps_client_ticket(ps_client_t *client);
/* Sleeps until the futex word differs from ticket, or for timeout_ns (>= 0; < 0: without a limit).
 * 0 = woken, PS_E_TIMEOUT, PS_E_INTERRUPTED, PS_E_FORKED. */
int ps_client_sleep(ps_client_t *client, uint32_t ticket, int64_t timeout_ns);
/* Spins before a ps_client_sleep, without a system call. Returns 1 as soon as the futex word
 * differs from ticket. Returns 0 after at most 150 us. If recent waits were long, or in a forked
 * child, returns 0 at once. */
int32_t ps_client_await(ps_client_t *client, uint32_t ticket);
void ps_client_wake(ps_client_t *client);
/* For an event loop, in place of a sleep. Requests that the next wake-up writes the client's
 * eventfd once. If the futex word already differs from ticket, returns 1: check the condition again
 * instead of waiting. waited_ns: duration of the last such wait (ps_client_await uses recent
 * waits); < 0: none. PS_E_INVALID without an eventfd, PS_E_FORKED. */
int32_t ps_client_watch(ps_client_t *client, uint32_t ticket, int64_t waited_ns);

/* Counter value cells (cnc.dat).  id in [0, ps_client_counter_count). */
int32_t ps_client_counter_count(const ps_client_t *client);
int64_t ps_client_counter_get(const ps_client_t *client, int32_t counter_id);
void ps_client_counter_set(ps_client_t *client, int32_t counter_id, int64_t value); /* release */
/* Returns the new value. */
int64_t ps_client_counter_add(ps_client_t *client, int32_t counter_id, int64_t delta);

/* ---- publication ----------------------------------------------------------------------------- */

typedef struct ps_pub ps_pub_t;

typedef struct ps_pub_params {
    const char *log_path; /* absolute path of the log buffer */
    int64_t registration_id;
    int32_t publication_slot;  /* index into penstock.dat */
    int32_t limit_counter_id;  /* pub-lmt */
    int32_t max_message_bytes; /* 0: min(T/8, 16 MiB) */
    uint8_t exclusive;
} ps_pub_params_t;

typedef struct ps_iov {
    const void *data;
    size_t length;
} ps_iov_t;

/* A claimed frame: write length bytes at data, then commit or abort. */
typedef struct ps_claim {
    uint8_t *data;    /* payload, NULL when the claim was refused */
    size_t length;    /* payload bytes */
    int64_t position; /* stream position after the message */
    void *frame;      /* owned by the library */
    uint32_t epoch;   /* owned by the library: identifies the count from which the claim's ordinal
                       * was taken */
} ps_claim_t;

typedef struct ps_pub_constants {
    int64_t registration_id;
    int32_t session_id;
    int32_t stream_id;
    int32_t initial_term_id;
    int32_t term_length;       /* bytes */
    int32_t mtu;               /* bytes of UDP payload */
    int32_t max_payload_bytes; /* unfragmented: mtu - 32 */
    int32_t max_message_bytes;
    int32_t window_bytes; /* publication window */
    int64_t max_position;
} ps_pub_constants_t;

int ps_pub_open(ps_client_t *client, const ps_pub_params_t *params, ps_pub_t **out);
void ps_pub_close(ps_pub_t *pub);
/* Marks the publication as closed: every further offer returns PS_CLOSED. Any thread. */
void ps_pub_mark_closed(ps_pub_t *pub);
void ps_pub_get_constants(const ps_pub_t *pub, ps_pub_constants_t *out);

/* Publishes one message of length bytes (0..max_message_bytes), in fragments if it exceeds
 * max_payload_bytes. Returns the position after the message, or a code; PS_E_TOO_LONG, PS_E_FORKED.
 * reserved_value is written into every frame's header. Bound: one pass over the message. */
int64_t ps_pub_offer(ps_pub_t *pub, const void *data, size_t length, int64_t reserved_value);
/* Like ps_pub_offer(), for one message in count >= 1 pieces. */
int64_t ps_pub_offerv(ps_pub_t *pub, const ps_iov_t *pieces, int32_t count, int64_t reserved_value);
/* Publishes messages base[offsets[i] .. offsets[i+1]) for i in [0, count), in order, until one is
 * refused. *accepted: number of published messages. Returns the position after the last published
 * message, or the code if no message was published. */
int64_t ps_pub_offer_batch(ps_pub_t *pub, const uint8_t *base, const int64_t *offsets,
                           int32_t count, int32_t *accepted);
/* Like ps_pub_offer_batch(), for messages of stride bytes each, without space between them. */
int64_t ps_pub_offer_strided(ps_pub_t *pub, const uint8_t *base, int64_t stride, int32_t count,
                             int32_t *accepted);

/* Claims one unfragmented frame of length <= max_payload_bytes.  Returns the position or a code. */
int64_t ps_pub_try_claim(ps_pub_t *pub, size_t length, ps_claim_t *claim);
/* Commits a claim; PS_E_UNBLOCKED if the daemon has padded over it. */
int ps_pub_commit(ps_pub_t *pub, ps_claim_t *claim, int64_t reserved_value);
int ps_pub_abort(ps_pub_t *pub, ps_claim_t *claim);

int64_t ps_pub_position(const ps_pub_t *pub); /* or PS_CLOSED */
int64_t ps_pub_limit(const ps_pub_t *pub);    /* publisher limit, or PS_CLOSED */
/* Returns the number of messages that the stream's message rate has admitted since its start;
 * INT64_MAX: it has no message rate. */
int64_t ps_pub_ordinal_limit(const ps_pub_t *pub);
/* Returns the time after which a publisher that got PS_THROTTLED may try again; 0: the governor
 * throttles no publisher. Any thread. */
int64_t ps_pub_retry_after_ns(const ps_pub_t *pub);
/* After PS_THROTTLED, for a message that must not be throttled: returns the code of the limit that
 * refused it, and counts the refusal under that cause. Any thread. */
int64_t ps_pub_unthrottle(ps_pub_t *pub);
/* Returns the number of messages that the credits of the stream allow now; INT64_MAX: no receiver
 * grants credits. PS_E_FORKED. Any thread. */
int64_t ps_pub_credits(const ps_pub_t *pub);
/* Copies the ordinal up to which receivers have granted credits, and the ordinal up to which
 * publishers have used them. PS_OK, PS_E_INVALID (no receiver grants credits), PS_E_FORKED. Any
 * thread. */
int ps_pub_credit_counts(const ps_pub_t *pub, int64_t *granted, int64_t *spent);
/* ps-policy=error: lets publishers continue after a failure. The publication keeps session,
 * positions and open claims. Returns 1 if the publication had failed, 0 if the publication had not
 * failed, PS_E_INVALID if its policy is not `error`. */
int ps_pub_reset(ps_pub_t *pub);
/* Returns 1 from the failure of the publication until its reset, else 0. */
int32_t ps_pub_is_failed(const ps_pub_t *pub);
/* Continues an exclusive publication whose owner, another process, has died. Turns the space that
 * the owner had reserved and not published into padding, and counts the publication's messages from
 * position `from` on. from: between two messages, at most two terms below the tail. ordinal: number
 * of messages below `from`. Returns the number of messages from `from` to the tail; PS_E_INVALID:
 * `from` is not such a position, or the publication is shared. PS_E_CORRUPT: the log has no frame
 * at a place where one must begin. Call it after ps_pub_open, before the first offer. Bound: two
 * terms. */
int64_t ps_pub_take_over(ps_pub_t *pub, int64_t from, int64_t ordinal);
int64_t ps_pub_available_window(const ps_pub_t *pub); /* bytes >= 0, or PS_CLOSED */
int32_t ps_pub_is_connected(const ps_pub_t *pub);
/* Copies the publication's accounts from shared memory: causes and culprits of refused offers.
 * PS_OK; PS_E_AGAIN: *out is unchanged except that out->stale = 1; PS_E_INVALID: the daemon has no
 * such publication any more; PS_E_FORKED. Any thread. Bound: eight copies of 3 KiB. */
int ps_pub_pressure(const ps_pub_t *pub, ps_pressure_view_t *out);
/* Requests a wake-up of this client when the publisher limit moves. */
void ps_pub_want_room(ps_pub_t *pub);

/* ---- image and subscription ------------------------------------------------------------------ */

typedef struct ps_img ps_img_t;
typedef struct ps_sub ps_sub_t;

typedef struct ps_img_params {
    const char *log_path;
    int64_t correlation_id; /* image id, or publication registration id for IPC and spies */
    int64_t subscription_id;
    int32_t position_counter_id; /* sub-pos; its value is the join position */
    int32_t subscriber_slot;     /* penstock.dat */
    int32_t image_slot;          /* penstock.dat; -1 for IPC and spies */
    int32_t publication_slot;    /* penstock.dat; -1 for network images */
    int32_t credit_mode;         /* ps_credit_mode */
    int32_t isolation;           /* ps_reader_isolation */
    int64_t depth_bytes;         /* of PS_READER_DROP_OLDEST */
    int64_t join_position;       /* of an isolated reader, as announced */
    int64_t join_ordinal;        /* number of messages below join_position; -1: unknown */
} ps_img_params_t;

/* The behaviour of a stream towards a reader that is behind (docs/back-pressure.md). */
enum ps_reader_isolation {
    PS_READER_GATES = 0,       /* the stream waits for the reader */
    PS_READER_INDEPENDENT = 1, /* it does not; an outrun reader continues with the oldest data */
    PS_READER_DROP_OLDEST = 2  /* it does not; the reader continues with the newest depth_bytes */
};

/* The way in which messages of an image return their credits. */
enum ps_credit_mode {
    PS_CREDIT_PLAIN = 0,     /* the reader grants none */
    PS_CREDIT_AUTOMATIC = 1, /* a message returns its credit when it is released */
    PS_CREDIT_HANDLES = 2    /* ps_img_return_credits does */
};

/* One received message.  data is valid until the next poll, release or close of its image;
 * assembled == 1: a copy in the image's own buffer (at most one message of a poll, and then the
 * last; of an isolated reader all messages).
 */
typedef struct ps_message {
    const uint8_t *data;
    int64_t length;         /* payload bytes */
    int64_t log_offset;     /* offset of data in the log file; -1 when assembled */
    int64_t start_position; /* of the first frame */
    int64_t position;       /* after the message */
    int64_t reserved_value;
    int32_t session_id;
    int32_t stream_id;
    int32_t term_id;
    int32_t term_offset; /* of the (first) frame */
    int32_t image_index; /* index in the subscription's image list */
    uint8_t flags;       /* flags of the frame; 0xC0 for an assembled message */
    uint8_t assembled;
} ps_message_t;

int ps_img_open(ps_client_t *client, const ps_img_params_t *params, ps_img_t **out);
void ps_img_close(ps_img_t *image);
int64_t ps_img_position(const ps_img_t *image); /* delivered */
int64_t ps_img_released(const ps_img_t *image);
int32_t ps_img_is_end_of_stream(const ps_img_t *image);
int64_t ps_img_end_of_stream_position(const ps_img_t *image); /* INT64_MAX until known */
int32_t ps_img_term_length(const ps_img_t *image);
int32_t ps_img_mtu(const ps_img_t *image);
int32_t ps_img_initial_term_id(const ps_img_t *image);
int32_t ps_img_session_id(const ps_img_t *image);
int64_t ps_img_join_position(const ps_img_t *image);
int32_t ps_img_transport_count(const ps_img_t *image);
/* The mapped log file, for views: base address and length in bytes. */
const uint8_t *ps_img_map(const ps_img_t *image, int64_t *length_bytes);
/* Returns 1 if a poll would return a message or report a gap. */
int32_t ps_img_has_data(const ps_img_t *image);

/* Delivers up to limit messages of one image. flags: see ps_poll_flags. Returns the count >= 0 or
 * a negative ps_error_code (PS_E_CORRUPT: the image is stopped at that position). Returns 0 if no
 * message was available at any time during the call; a caller that took its ticket before the
 * call may sleep. Before it looks for messages, the call releases the messages of the previous
 * poll. Bound: limit messages, or the end of the term, or three terms of padding and fragments. */
int32_t ps_img_poll(ps_img_t *image, ps_message_t *out, int32_t limit, int32_t flags);
/* Makes polls report permanent gaps (reliable=false, dropped ranges). A poll that reaches such a
 * gap ends before the gap. The next poll moves past the gap. From then on polls return PS_E_GAP
 * until the application has fetched the gap with ps_img_take_gap(). */
void ps_img_report_gaps(ps_img_t *image);
/* States that this reader is a relay, which publishes the messages on the publication in the given
 * slot of penstock.dat. The status messages of the image then name the application that blocks that
 * publication. Owner thread of the image. */
void ps_img_relay_to(ps_img_t *image, int32_t publication_slot);
/* Returns 1 if the positions *from..*to are missing permanently. *messages is the number of lost
 * messages; -1: unknown. Returns 0 if there is no gap. */
int32_t ps_img_take_gap(ps_img_t *image, int64_t *from, int64_t *to, int64_t *messages);
/* Returns the number of messages between two frame boundaries of the received stream; -1: a gap
 * lies between them, or the log does not hold these frames. Bound: three terms. */
int64_t ps_img_count(const ps_img_t *image, int64_t from, int64_t to);
/* Moves the delivered position back to position, a frame boundary in [released, delivered]. The
 * next poll delivers the messages after this position again. */
int ps_img_rewind(ps_img_t *image, int64_t position);
/* Releases all delivered messages. The receiver window moves, and views of these messages become
 * invalid. */
void ps_img_release(ps_img_t *image);

/* PS_CREDIT_HANDLES: returns credits of delivered messages, in any order. Returns the number of
 * credits that are still held, PS_E_INVALID (n is too large, no credit was returned), or
 * PS_E_FORKED. Dropped messages return their credits automatically. Rewound messages hold no
 * credits. Any thread. */
int64_t ps_img_return_credits(ps_img_t *image, int64_t credits);
/* Counts credits whose handles were lost. These credits are missing until the image closes, or
 * until ps_img_reclaim_credits returns them. Results are as above; ps_img_reclaim_credits returns
 * the number of credits that are still lost. Any thread. */
int64_t ps_img_leak_credits(ps_img_t *image, int64_t credits);
int64_t ps_img_reclaim_credits(ps_img_t *image, int64_t credits);
/* Copies the credits of the image's reader. PS_OK, PS_E_INVALID, PS_E_FORKED. Any thread. */
int ps_img_credits(const ps_img_t *image, ps_credit_view_t *out);

enum ps_poll_flags {
    PS_POLL_ASSEMBLE = 1, /* join fragments into whole messages */
    PS_POLL_KEEP = 2      /* do not release the messages of earlier polls */
};

int ps_sub_open(ps_client_t *client, int64_t registration_id, int32_t stream_id, ps_sub_t **out);
void ps_sub_close(ps_sub_t *sub); /* does not close its images */
int ps_sub_add_image(ps_sub_t *sub, ps_img_t *image);
int ps_sub_remove_image(ps_sub_t *sub, ps_img_t *image);
int32_t ps_sub_image_count(const ps_sub_t *sub);
/* Returns NULL beyond the last image. Indexes change when images are added or removed. */
ps_img_t *ps_sub_image(const ps_sub_t *sub, int32_t index);
/* Polls the images in turn until limit messages were found. Each call starts one image later than
 * the last call. */
int32_t ps_sub_poll(ps_sub_t *sub, ps_message_t *out, int32_t limit, int32_t flags);
/* Rewinds messages[from..count), so that the next poll delivers them again. Call it when the
 * handler of messages[from] failed. */
void ps_sub_rewind(ps_sub_t *sub, const ps_message_t *messages, int32_t count, int32_t from);
void ps_sub_release(ps_sub_t *sub);
int32_t ps_sub_has_data(const ps_sub_t *sub);

/* ---- results of a poll as columns: valid inputs are those of the latest poll ----------------- */

/* Returns the sum of the lengths. */
int64_t ps_messages_bytes(const ps_message_t *messages, int32_t count);
/* Copies the payloads into data, without space between them (room for ps_messages_bytes()); payload
 * i lies between offsets[i] and offsets[i + 1] (count + 1 entries). */
void ps_messages_gather(const ps_message_t *messages, int32_t count, int64_t *offsets,
                        uint8_t *data);
/* Copies positions, session ids and reserved values; each array has an entry for each message. */
void ps_messages_columns(const ps_message_t *messages, int32_t count, int64_t *positions,
                         int32_t *session_ids, int64_t *reserved_values);

#ifdef __cplusplus
}
#endif
#endif
