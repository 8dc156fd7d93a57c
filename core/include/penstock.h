/* SPDX-License-Identifier: Apache-2.0
 *
 * penstock.h: the data path of a penstock client.
 *
 * A client process maps the shared-memory files in a daemon's directory. The process publishes with
 * offer and receives with poll; in steady state, these calls make no system call. The client adds
 * publications and subscriptions in Python, by requests on the daemon's control socket. The
 * daemon's answers contain the parameters of the _open functions below.
 *
 * Threads: several threads may share a ps_client_t. Several threads and processes may offer to a
 * shared publication. Only one thread at a time may use an exclusive publication, a subscription or
 * an image.
 *
 * Errors: functions of type int return 0 or a negative ps_error_code; ps_last_error() has the text
 * for the calling thread. Functions that return a position return a value > 0, or a negative
 * ps_offer_code or ps_error_code.
 *
 * Python's cffi also reads this header. The header therefore uses only plain C types and enums, and
 * defines no value by a macro.
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

/* Reasons to refuse an offer. The codes -1 to -6 are the same as in Aeron; codes <= -100 exist only
 * in penstock (docs/spec/rules.md section 5). */
enum ps_offer_code {
    PS_NOT_CONNECTED = -1,         /* no receiver is connected to the stream; retry after a receiver
                                    * has joined */
    PS_BACK_PRESSURED = -2,        /* the stream's position has reached the publisher limit; retry
                                    * after the limit has risen */
    PS_ADMIN_ACTION = -3,          /* the log is being rotated to the next term, or was just
                                    * rotated; retry at once */
    PS_CLOSED = -4,                /* the publication was closed */
    PS_MAX_POSITION_EXCEEDED = -5, /* the stream has used all its 2^31 terms; add a new
                                    * publication */
    PS_OFFER_ERROR = -6,           /* see ps_last_error() */
    PS_NO_CREDIT = -100,
    PS_THROTTLED = -101,
    PS_RATE_LIMITED = -102,
    PS_DROPPED = -103,
    PS_FAILED = -104,
    PS_STORAGE = -105,    /* there is no memory for the next term */
    PS_DAEMON_AWAY = -106 /* the daemon died; retry after a new daemon has adopted the stream */
};

/* Codes of misuse and failures. Back pressure is no error: an offer reports back pressure by a
 * ps_offer_code. */
enum ps_error_code {
    PS_OK = 0,
    PS_E_INVALID = -1001,  /* an argument is out of range */
    PS_E_TOO_LONG = -1002, /* the message is longer than the stream's limit */
    PS_E_NO_MEMORY = -1003,
    PS_E_SYSTEM = -1004,  /* a system call failed; errno is in the text */
    PS_E_VERSION = -1005, /* the file has another version, or is not a file of penstock */
    PS_E_CORRUPT = -1006, /* shared memory contains an impossible value */
    PS_E_TIMEOUT = -1007,
    PS_E_INTERRUPTED = -1008, /* a signal arrived while waiting */
    PS_E_FORKED = -1009,      /* the handle was opened before a fork and used in the child
                               * process */
    PS_E_NO_SPACE = -1010,    /* the file system or a slot table is full */
    PS_E_AGAIN = -1011,       /* bounded queue full: repeat later */
    /* The claim was open for too long, so the daemon replaced the claim with padding; readers do
     * not get the message. */
    PS_E_UNBLOCKED = -1012,
    PS_E_ADDRESS_IN_USE = -1013,
    PS_E_NO_INTERFACE = -1014,
    PS_E_NO_BUFFER = -1015, /* socket buffer smaller than requested */
    PS_E_PERMISSION = -1016,
    PS_E_GAP = -1017 /* the poll reached a gap; fetch it with ps_img_take_gap */
};

/* Returns the text of the calling thread's last failure, "" if there was none. The text is valid
 * until the thread's next failure. */
const char *ps_last_error(void);

/* Version of the library, "major.minor.patch". */
const char *ps_version(void);

/* ---- client ---------------------------------------------------------------------------------- */

typedef struct ps_client ps_client_t;

typedef struct ps_client_params {
    const char *directory;    /* daemon directory */
    int64_t client_id;        /* client id, which the daemon sent over lease.sock */
    int32_t client_slot;      /* index of the client's slot in penstock.dat */
    int32_t sender_wake_fd;   /* eventfd that wakes the sender thread; the caller keeps it open; -1:
                               * none */
    int32_t receiver_wake_fd; /* eventfd that wakes the receiver thread; the caller keeps it open;
                               * -1: none */
    int32_t watch_fd;         /* eventfd that ps_client_watch uses to wake an event loop; the caller
                               * keeps it open; -1: none */
} ps_client_params_t;

/* Maps cnc.dat and penstock.dat read-write.  PS_E_VERSION, PS_E_SYSTEM, PS_E_NO_MEMORY. */
int ps_client_open(const ps_client_params_t *params, ps_client_t **out);
/* Unmaps the files. Close all handles of the client before this call. NULL is allowed. */
void ps_client_close(ps_client_t *client);

/* Marks the daemon as gone (1) or as running (0). While the daemon is gone, offers return
 * PS_DAEMON_AWAY. Any thread. */
void ps_client_set_daemon_away(ps_client_t *client, int32_t away);

/* A thread that waits takes a ticket, checks its condition, and sleeps if the condition is false.
 * Any wake-up after the thread took its ticket ends the sleep. A wake-up is a change of the
 * client's futex word. The daemon changes the futex word in two cases: an image of the client got
 * data, or the control plane has a notice for the client. If the client waits for room in a stream,
 * the daemon also changes the futex word when the publisher limit rises. The client's process can
 * change the futex word with ps_client_wake(). */
uint32_t ps_client_ticket(ps_client_t *client);
/* Sleeps until the futex word differs from the ticket, or for timeout_ns (< 0: without a limit).
 * Returns 0 if the thread was woken, else PS_E_TIMEOUT, PS_E_INTERRUPTED or PS_E_FORKED. */
int ps_client_sleep(ps_client_t *client, uint32_t ticket, int64_t timeout_ns);
/* Waits for a wake-up by spinning, without a system call. Call this function before
 * ps_client_sleep. Returns 1 as soon as the futex word differs from ticket. Returns 0 after at most
 * 150 us. If recent waits were long, or in a forked child, returns 0 at once. */
int32_t ps_client_await(ps_client_t *client, uint32_t ticket);
void ps_client_wake(ps_client_t *client);
/* Use this function in an event loop in place of ps_client_sleep. The thread that next wakes the
 * client writes to the client's eventfd, once. Returns 1 if the futex word already differs from the
 * ticket; the caller must then check its condition again instead of waiting. The parameter
 * waited_ns is the duration of the caller's last wait (< 0: there was none). The client records
 * this duration, because ps_client_await spins only if recent waits were short. Returns
 * PS_E_INVALID if the client has no eventfd, and PS_E_FORKED in a forked child. */
int32_t ps_client_watch(ps_client_t *client, uint32_t ticket, int64_t waited_ns);

/* Counters in cnc.dat. A counter id is in [0, ps_client_counter_count). */
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

/* A claimed frame: the application writes `length` bytes at `data`, then commits or aborts the
 * claim. */
typedef struct ps_claim {
    uint8_t *data;    /* payload of the claimed frame; NULL: the claim was refused */
    size_t length;    /* payload bytes */
    int64_t position; /* stream position after the message */
    void *frame;      /* owned by the library */
    uint32_t epoch;   /* Owned by the library. If the claim took credits or a share of the stream's
                       * rate limit, ps_pub_abort needs this value to return them. */
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

/* Publishes one message of `length` bytes (0 to max_message_bytes), in fragments if it is longer
 * than max_payload_bytes. Writes reserved_value into the header of every frame. Returns the
 * position after the message, or a ps_offer_code, PS_E_TOO_LONG or PS_E_FORKED. Cost: copies the
 * message once. */
int64_t ps_pub_offer(ps_pub_t *pub, const void *data, size_t length, int64_t reserved_value);
/* Publishes one message like ps_pub_offer(). The message consists of `count` >= 1 pieces. */
int64_t ps_pub_offerv(ps_pub_t *pub, const ps_iov_t *pieces, int32_t count, int64_t reserved_value);
/* Publishes `count` messages in order, until one is refused. Message i is base[offsets[i] ..
 * offsets[i+1]). *accepted gets the number of published messages. Returns the position after the
 * last published message, or the code if no message was published. */
int64_t ps_pub_offer_batch(ps_pub_t *pub, const uint8_t *base, const int64_t *offsets,
                           int32_t count, int32_t *accepted);
/* Publishes messages like ps_pub_offer_batch(). Each message has `stride` bytes, without space
 * between the messages. */
int64_t ps_pub_offer_strided(ps_pub_t *pub, const uint8_t *base, int64_t stride, int32_t count,
                             int32_t *accepted);

/* Claims space for one message of at most max_payload_bytes, which fits into one frame. Returns the
 * position after the message, or a negative ps_offer_code or ps_error_code. */
int64_t ps_pub_try_claim(ps_pub_t *pub, size_t length, ps_claim_t *claim);
/* Commits a claim. Returns PS_E_UNBLOCKED if the daemon has replaced the claim with padding. */
int ps_pub_commit(ps_pub_t *pub, ps_claim_t *claim, int64_t reserved_value);
int ps_pub_abort(ps_pub_t *pub, ps_claim_t *claim);

int64_t ps_pub_position(const ps_pub_t *pub); /* or PS_CLOSED */
int64_t ps_pub_limit(const ps_pub_t *pub);    /* publisher limit, or PS_CLOSED */
/* Returns the number of messages that the stream's rate limit has allowed since the stream began.
 * Returns INT64_MAX if the stream has no limit in messages per second. */
int64_t ps_pub_ordinal_limit(const ps_pub_t *pub);
/* Returns how long a publisher must wait after PS_THROTTLED before its next offer; 0: the governor
 * (the daemon's overload control, docs/scheduling.md) throttles no publisher now. Any thread. */
int64_t ps_pub_retry_after_ns(const ps_pub_t *pub);
/* Call this function after an offer has returned PS_THROTTLED for a message that the governor must
 * not throttle. Checks all other limits, and returns the code of the limit that refuses the message
 * now. Counts the offer as refused by this limit (ps_pressure_view_t.refused), and not by the
 * governor. Any thread. */
int64_t ps_pub_unthrottle(ps_pub_t *pub);
/* Returns how many more messages the stream's credits allow now; INT64_MAX: no receiver grants
 * credits. PS_E_FORKED. Any thread. */
int64_t ps_pub_credits(const ps_pub_t *pub);
/* Copies two message numbers (ordinals) of the stream. *granted: receivers have granted credits for
 * the messages up to this number. *spent: publishers have used credits for the messages up to this
 * number. Returns PS_OK, PS_E_INVALID (no receiver grants credits) or PS_E_FORKED. Any thread. */
int ps_pub_credit_counts(const ps_pub_t *pub, int64_t *granted, int64_t *spent);
/* With ps-policy=error: lets publishers continue after the publication has failed. After the reset,
 * the publication has the same session, positions and open claims as before. Returns 1 if the
 * publication had failed, 0 if the publication had not failed, PS_E_INVALID if its policy is not
 * `error`. */
int ps_pub_reset(ps_pub_t *pub);
/* Returns 1 if the publication has failed and was not reset since; else 0. */
int32_t ps_pub_is_failed(const ps_pub_t *pub);
/* Takes over an exclusive publication from a process that has died. Writes padding into the log
 * space that the dead process had reserved and not published. Then counts the messages from the
 * position `from` to the tail (the end of the published data). The position `from` must lie between
 * two messages, at most two terms below the tail. `ordinal` is the number of messages of the stream
 * before `from`. Returns the number of messages from `from` to the tail. Returns PS_E_INVALID if
 * `from` does not lie between two messages or is too low, or if the publication is shared.
 * PS_E_CORRUPT: the log has no frame at a position where a frame must begin. Call this function
 * after ps_pub_open, before the first offer. Cost: visits the frames of at most two terms. */
int64_t ps_pub_take_over(ps_pub_t *pub, int64_t from, int64_t ordinal);
int64_t ps_pub_available_window(const ps_pub_t *pub); /* bytes >= 0, or PS_CLOSED */
int32_t ps_pub_is_connected(const ps_pub_t *pub);
/* Copies the publication's two accounts from shared memory: the blocked time by cause and culprit,
 * and the number of refused offers by cause. Returns PS_OK. PS_E_AGAIN: the sender changed the
 * accounts during each attempt to copy them, so the function only sets out->stale to 1.
 * PS_E_INVALID: the daemon no longer has the publication. PS_E_FORKED. Any thread. Cost: at most
 * eight attempts, each of which copies 3 KiB. */
int ps_pub_pressure(const ps_pub_t *pub, ps_pressure_view_t *out);
/* Requests that the daemon wakes this client when the publisher limit moves. */
void ps_pub_want_room(ps_pub_t *pub);

/* ---- image and subscription ------------------------------------------------------------------ */

typedef struct ps_img ps_img_t;
typedef struct ps_sub ps_sub_t;

typedef struct ps_img_params {
    const char *log_path;
    int64_t correlation_id; /* id of the image; on IPC and for spies, the publication's registration
                             * id */
    int64_t subscription_id;
    int32_t position_counter_id; /* id of the subscriber's position counter, which the daemon has
                                  * set to the join position */
    int32_t subscriber_slot;     /* penstock.dat */
    int32_t image_slot;          /* slot in penstock.dat; -1 for IPC and spies */
    int32_t publication_slot;    /* penstock.dat; -1 for network images */
    int32_t credit_mode;         /* ps_credit_mode */
    int32_t isolation;           /* ps_reader_isolation */
    int64_t depth_bytes;         /* of PS_READER_DROP_OLDEST */
    int64_t join_position;       /* position at which an isolated reader joins, as the daemon
                                  * announced; the stream does not wait for isolated readers */
    int64_t join_ordinal;        /* number of messages of the stream below join_position; -1:
                                  * unknown */
    int32_t fan_in_weight;       /* Weight of this image, 1 to PS_FAN_IN_MAX. A poll of the
                                  * subscription reads more messages from images with a larger
                                  * weight. 0: the images take turns. */
} ps_img_params_t;

/* How a stream treats a reader that is too slow (docs/back-pressure.md). */
enum ps_reader_isolation {
    PS_READER_GATES = 0,       /* the stream waits for the reader */
    PS_READER_INDEPENDENT = 1, /* the stream does not wait for the reader; a reader that lost data
                                * continues with the oldest data in the log */
    PS_READER_DROP_OLDEST = 2  /* the stream does not wait for the reader; a reader that lost data
                                * continues with the newest depth_bytes */
};

enum { PS_FAN_IN_MAX = 8 }; /* largest fan_in_weight */

/* States when a reader returns the credits of its messages to the publisher. */
enum ps_credit_mode {
    PS_CREDIT_PLAIN = 0,     /* the reader grants none */
    PS_CREDIT_AUTOMATIC = 1, /* the release of a message returns its credit */
    PS_CREDIT_HANDLES = 2    /* ps_img_return_credits does */
};

/* One received message. `data` is valid until the next poll, release or close of the image. If
 * `assembled` is 1, `data` points to a copy in the image's own buffer. Only the last message of a
 * poll can be a copy in this buffer. If the stream does not wait for the reader (isolated reader),
 * `data` always points to a copy.
 */
typedef struct ps_message {
    const uint8_t *data;
    int64_t length;         /* payload bytes */
    int64_t log_offset;     /* offset of `data` in the log file; -1: the message was assembled */
    int64_t start_position; /* of the first frame */
    int64_t position;       /* after the message */
    int64_t reserved_value;
    int32_t session_id;
    int32_t stream_id;
    int32_t term_id;
    int32_t term_offset; /* of the (first) frame */
    int32_t image_index; /* index of the message's image in the subscription's list */
    uint8_t flags;       /* flags of the message's frame; 0xC0 for an assembled message */
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
/* Returns the base address of the mapped log file, for views into it. *length_bytes gets its
 * length. */
const uint8_t *ps_img_map(const ps_img_t *image, int64_t *length_bytes);
/* Returns 1 if a poll would return a message or report a gap. */
int32_t ps_img_has_data(const ps_img_t *image);

/* Delivers up to `limit` messages of one image; `flags` are ps_poll_flags. Returns the number of
 * messages, or a negative ps_error_code (PS_E_CORRUPT: the log is damaged, so the image stays at
 * its position). Returns 0 only if no message was available at any time during the call. A caller
 * may sleep after a poll that returned 0, if the caller took its ticket before this poll. Before a
 * poll delivers messages, it releases the messages of the previous poll. A poll ends after `limit`
 * messages or at the end of the term. A poll that finds no message in a term continues with the
 * next term, and reads at most three terms. */
int32_t ps_img_poll(ps_img_t *image, ps_message_t *out, int32_t limit, int32_t flags);
/* Makes polls report gaps: ranges that are lost permanently (with reliable=false, or because
 * publishers dropped messages). A poll that reaches a gap ends before the gap. The next poll moves
 * past the gap and returns PS_E_GAP. All further polls also return PS_E_GAP, until the application
 * has fetched the gap with ps_img_take_gap(). */
void ps_img_report_gaps(ps_img_t *image);
/* Declares this reader as a relay. The relay publishes the received messages on the publication
 * that has the given slot in penstock.dat. If an application blocks the publication, the status
 * messages of the relay's image then name this application as the culprit. Owner thread of the
 * image. */
void ps_img_relay_to(ps_img_t *image, int32_t publication_slot);
/* Continues the image of a relay whose process has died. `recorded` is the end of the last message
 * that the dead process has published, or of the last gap that was reported to it. If the dead
 * process had released the first fragments of the next message, the next poll delivers this message
 * from its first fragment on: a message lies in one term, so its fragments are still in the log. If
 * the dead process had not released the whole log below `recorded`, the image moves past the rest.
 * `ordinal` is the number of messages below `recorded`, as ps_img_ordinal() counts; -1: unknown.
 * Call this function before the first poll. */
int ps_img_take_over(ps_img_t *image, int64_t recorded, int64_t ordinal);
/* Returns the number of messages of the session below the delivered position, the number from which
 * the next gap of an isolated reader counts. -1: unknown, or the reader is not isolated. */
int64_t ps_img_ordinal(ps_img_t *image);
/* Fetches the gap that a poll reached. If a poll has reached a gap, returns 1, and stores the gap:
 * the positions *from to *to are lost permanently. *messages gets the number of lost messages; -1:
 * unknown. Returns 0 if no poll has reached a gap. */
int32_t ps_img_take_gap(ps_img_t *image, int64_t *from, int64_t *to, int64_t *messages);
/* Returns the number of received messages between two positions. Each position must lie between two
 * frames. Returns -1 if a gap lies between the positions, or if the log no longer contains the
 * frames between the positions. Cost: visits the frames of at most three terms. */
int64_t ps_img_count(const ps_img_t *image, int64_t from, int64_t to);
/* Moves the delivered position back to `position`, which must lie between two frames, at or above
 * the released position. The next poll delivers the messages after this position again. */
int ps_img_rewind(ps_img_t *image, int64_t position);
/* Releases all delivered messages. The receiver window moves forward by the released bytes. Views
 * of the released messages become invalid. */
void ps_img_release(ps_img_t *image);

/* With PS_CREDIT_HANDLES: returns credits of delivered messages, in any order. Returns the number
 * of credits that the application has not yet returned, PS_E_INVALID or PS_E_FORKED. PS_E_INVALID:
 * the application has fewer than `credits` credits, so the function returned no credit. The library
 * itself returns the credits of messages that publishers dropped. Rewound messages hold no credits.
 * Any thread. */
int64_t ps_img_return_credits(ps_img_t *image, int64_t credits);
/* If the application drops a credit handle without returning its credits, call ps_img_leak_credits,
 * which counts these credits as lost. Publishers can use lost credits again after the image has
 * closed, or after ps_img_reclaim_credits has returned them. The functions ps_img_leak_credits and
 * ps_img_reclaim_credits return the same error codes as ps_img_return_credits. On success,
 * ps_img_reclaim_credits returns the number of credits that are still lost. Any thread. */
int64_t ps_img_leak_credits(ps_img_t *image, int64_t credits);
int64_t ps_img_reclaim_credits(ps_img_t *image, int64_t credits);
/* Copies the state and the counts of the reader's credits to *out. PS_OK, PS_E_INVALID,
 * PS_E_FORKED. Any thread. */
int ps_img_credits(const ps_img_t *image, ps_credit_view_t *out);

enum ps_poll_flags {
    PS_POLL_ASSEMBLE = 1, /* join fragments into whole messages */
    PS_POLL_KEEP = 2      /* the poll does not release the messages of earlier polls */
};

int ps_sub_open(ps_client_t *client, int64_t registration_id, int32_t stream_id, ps_sub_t **out);
void ps_sub_close(ps_sub_t *sub); /* does not close its images */
int ps_sub_add_image(ps_sub_t *sub, ps_img_t *image);
int ps_sub_remove_image(ps_sub_t *sub, ps_img_t *image);
int32_t ps_sub_image_count(const ps_sub_t *sub);
/* Returns an image by its index, NULL beyond the last image. Indexes change when images are added
 * or removed. */
ps_img_t *ps_sub_image(const ps_sub_t *sub, int32_t index);
/* Polls the subscription's images one after the other, until the poll has found `limit` messages.
 * If a call of ps_sub_poll starts with image i, the next call starts with image i + 1. */
int32_t ps_sub_poll(ps_sub_t *sub, ps_message_t *out, int32_t limit, int32_t flags);
/* Moves the images' positions back, so that the next poll delivers messages[from..count) again.
 * Call this function if the application's handler failed for messages[from]. */
void ps_sub_rewind(ps_sub_t *sub, const ps_message_t *messages, int32_t count, int32_t from);
void ps_sub_release(ps_sub_t *sub);
int32_t ps_sub_has_data(const ps_sub_t *sub);

/* ---- results of a poll as columns: valid inputs are those of the latest poll ----------------- */

/* Returns the sum of the lengths of the messages. */
int64_t ps_messages_bytes(const ps_message_t *messages, int32_t count);
/* Copies the payloads into `data` without space between them; `data` needs room for
 * ps_messages_bytes(). Payload i lies between offsets[i] and offsets[i + 1], so `offsets` needs
 * count + 1 entries. */
void ps_messages_gather(const ps_message_t *messages, int32_t count, int64_t *offsets,
                        uint8_t *data);
/* Copies positions, session ids and reserved values; each array has an entry for each message. */
void ps_messages_columns(const ps_message_t *messages, int32_t count, int64_t *positions,
                         int32_t *session_ids, int64_t *reserved_values);

#ifdef __cplusplus
}
#endif
#endif
