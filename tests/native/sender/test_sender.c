/* SPDX-License-Identifier: Apache-2.0
 * The sender towards the network: the worked session byte for byte, and each rule of sending.
 */
#include "ps_driver_state.h"
#include "sender_rig.h"

static const char THIRTY_THREE[] = "0123456789:;<=>?@ABCDEFGHIJKLMNOP";

static void offer_worked_session(rig_t *rig)
{
    rig_offer(rig, "Hello", 5, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    rig_expect_golden(rig, "data_hello");
    rig_offer(rig, THIRTY_THREE, 33, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    rig_expect_golden(rig, "data_33");
    rig_offer(rig, "CC", 2, PS_FLAG_UNFRAGMENTED);
    rig_offer(rig, "DD", 2, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    rig_expect_golden(rig, "data_two");
}

static void test_worked_session(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    uint8_t frame[256];
    ps_event_t event;
    rig_step(rig, 0);
    rig_expect_golden(rig, "setup");
    rig_step(rig, 99 * MS);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_step(rig, 1 * MS);
    rig_expect_golden(rig, "setup");
    rig_inject(rig, &rig->peer, frame, golden("sm", frame));
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), 32768);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    CHECK(rig_event(rig, PS_EV_PUB_CONNECTED, &event) && event.connection.connected == 1 &&
          event.id == 1);
    offer_worked_session(rig);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 288);
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), 4);
    rig_inject(rig, &rig->peer, frame, golden("nak", frame));
    rig_step(rig, 0);
    rig_expect_golden(rig, "data_33");
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_inject(rig, &rig->peer, frame, golden("nak", frame));
    rig_step(rig, 9 * MS);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_inject(rig, &rig->peer, frame, golden("nak", frame));
    rig_step(rig, 1 * MS);
    rig_expect_golden(rig, "data_33");
    CHECK_EQ(rig_counter(rig, PS_SYS_RETRANSMITS_SENT), 2);
    CHECK_EQ(rig_counter(rig, PS_SYS_RETRANSMITTED_BYTES), 192);
    CHECK_EQ(rig_counter(rig, rig->naks), 3);
    rig_step(rig, 89 * MS);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_step(rig, 1 * MS);
    rig_expect_golden(rig, "heartbeat");
    CHECK_EQ(ps_publication_drain(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 0);
    CHECK(rig_event(rig, PS_EV_PUB_DRAINED, &event) && event.drained.unsent == 0);
    CHECK_EQ(atomic_load(&rig->log.meta->end_of_stream), 288);
    rig_step(rig, 100 * MS);
    rig_expect_golden(rig, "eos");
    rig_inject(rig, &rig->peer, frame, golden("sm_eos", frame));
    rig_step(rig, 0);
    CHECK(rig_event(rig, PS_EV_PUB_EOS_ACK, &event));
    rig_step(rig, 100 * MS);
    rig_expect_golden(rig, "eos");
    CHECK_EQ(ps_publication_remove(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 0);
    CHECK(rig_event(rig, PS_EV_RELEASED, &event) && event.kind == PS_KIND_PUBLICATION);
    ps_publication_destroy(rig->driver, rig->pub);
    rig_step(rig, 1 * S);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_close(rig);
}

static void test_setup_on_request_and_round_trip(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    uint8_t frame[256];
    rig_connect(rig);
    rig_step(rig, 100 * MS); /* the heartbeat for the new receiver */
    memnet_discard(rig->net);
    rig_inject(rig, &rig->peer, frame, golden("sm_setup", frame));
    rig_step(rig, 0);
    rig_expect_golden(rig, "setup");
    memnet_discard(rig->net);
    rig_step(rig, 50 * MS);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_inject(rig, &rig->peer, frame, golden("rttm_request", frame));
    rig_step(rig, 0);
    rig_expect_golden(rig, "rttm_reply");
    rig_close(rig);
}

static void test_trailer_only_when_advertised(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .advertise = 1 });
    ps_setup_t setup;
    rig_step(rig, 0);
    rig_take(rig);
    CHECK(rig->got.length > PS_SETUP_BYTES && rig->got.data[0] == PS_SETUP_BYTES);
    CHECK_EQ(ps_wire_setup(rig->got.data, rig->got.length, &setup), PS_WIRE_OK);
    CHECK(setup.trailer.capabilities != 0 && setup.trailer.ordinal == 0);
    CHECK_EQ(setup.trailer.flow_control, PS_FC_UNICAST);
    rig_close(rig);
}

static void test_window_is_respected(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    int64_t sent = 0;
    rig_step(rig, 0);
    memnet_discard(rig->net);
    rig_sm(rig, 5, &rig->peer, 0, 4096, 0);
    rig_step(rig, 0);
    for (int i = 0; i < 20; i++) { /* 20 x 1024 bytes of log */
        rig_offer(rig, NULL, 992, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 4096);
    while (memnet_take(rig->net, &rig->got)) {
        CHECK_EQ(rig->got.length, 1024); /* two would not fit the MTU */
        sent += rig->got.length;
    }
    CHECK_EQ(sent, 4096);
    CHECK_EQ(rig_counter(rig, rig->back_pressure), 0);
    rig_dirty(rig);
    rig_step(rig, 0);
    rig_dirty(rig);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->back_pressure), 1);
    CHECK_EQ(rig_counter(rig, PS_SYS_BACK_PRESSURE), 1);
    rig_sm(rig, 5, &rig->peer, 1024, 4096, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 5120);
    rig_sm(rig, 5, &rig->peer, 1024, 1024, 0); /* an edge behind changes nothing */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), 5120);
    rig_close(rig);
}

static void test_frames_are_packed_to_the_mtu(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    for (int i = 0; i < 50; i++) { /* 64 bytes each; 22 fill 1408 */
        rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    }
    const int32_t before = memnet_sends(rig->net);
    rig_step(rig, 0);
    CHECK_EQ(memnet_sends(rig->net) - before, 1);
    CHECK_EQ(rig_take(rig)->length, 1408);
    CHECK_EQ(rig_take(rig)->length, 1408);
    CHECK_EQ(rig_take(rig)->length, 6 * 64);
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), 50);
    rig_close(rig);
}

static void test_pad_is_a_header_only(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .first_offset = 65472 });
    rig_step(rig, 0);
    memnet_discard(rig->net);
    rig_sm(rig, 5, &rig->peer, 65472, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    rig_offer(rig, NULL, 100, PS_FLAG_UNFRAGMENTED); /* 64 bytes are left: PAD, next term */
    rig_step(rig, 0);
    rig_expect_golden(rig, "pad");
    CHECK_EQ(rig_take(rig)->length, 160);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 65536 + 160);
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), 1);
    rig_close(rig);
}

static void test_a_claim_stops_the_sender(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    rig_offer(rig, "a", 1, PS_FLAG_UNFRAGMENTED);
    const int64_t claim = rig_claim(rig, 10, 0);
    rig_offer(rig, "b", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), claim);
    CHECK(rig_commit(rig, claim, 10, 0));
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), rig_tail(rig));
    rig_close(rig);
}

static void test_nonsense_in_the_log_is_not_sent(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_event_t event;
    rig_connect(rig);
    const int64_t claim = rig_claim(rig, 10, 0);
    atomic_store(ps_frame_word(ps_frame_at(&rig->log, claim)),
                 ps_frame_word_of(0x7FFFFFFF, 0xC0, PS_TYPE_DATA));
    rig_dirty(rig);
    rig_step(rig, 0);
    CHECK_EQ(memnet_pending(rig->net), 0);
    CHECK(rig_event(rig, PS_EV_ENDPOINT_ERROR, &event) && event.error.code == PS_E_CORRUPT);
    rig_close(rig);
}

static void test_status_messages_are_checked(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_step(rig, 0);
    rig_sm(rig, 5, &rig->peer, 0, RIG_TERM / 2 + 32, 0); /* window */
    rig_sm(rig, 5, &rig->peer, 16, 1024, 0);             /* alignment */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, PS_SYS_INVALID_PACKETS), 2);
    const ps_sm_t beyond = { .session_id = GOLDEN_SESSION,
                             .stream_id = GOLDEN_STREAM,
                             .term_id = ps_wrap_sub(GOLDEN_TERM, 1),
                             .term_offset = RIG_TERM + 64,
                             .window = 1024,
                             .receiver_id = 5 }; /* a position like any other */
    uint8_t out[PS_CONTROL_MAX];
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &beyond, NULL));
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, PS_SYS_INVALID_PACKETS), 3);
    rig_sm(rig, 5, &rig->peer, RIG_TERM / 2 + 32, 1024, 0); /* range */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, PS_SYS_SM_REJECTED), 1);
    CHECK_EQ(rig_counter(rig, PS_SYS_SM_RECEIVED), 1);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), 0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    rig_close(rig);
}

/* Padding that began inside the window was passed and reaches beyond it.  The one receiver has none
 * of it, and was not heard for a while: its status message speaks of a position further than T/2
 * behind the sender, and is how it gets back what it missed. */
static void test_who_granted_padding_is_still_heard(void)
{
    enum { SIZE = 1024, HELD = RIG_TERM / 2 - 2 * SIZE };
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    for (int64_t end = 0; end < RIG_TERM - 2 * SIZE; end += SIZE) {
        rig_sm(rig, 5, &rig->peer, end < HELD ? end : HELD, RIG_TERM / 2, 0);
        CHECK_EQ(rig_offer(rig, NULL, SIZE - PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED), end + SIZE);
        rig_step(rig, 0);
    }
    rig_sm(rig, 5, &rig->peer, HELD + 32, RIG_TERM / 2, 0); /* room for a header */
    rig_offer(rig, NULL, 2 * SIZE, PS_FLAG_UNFRAGMENTED);   /* PAD, next term */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), RIG_TERM);
    rig_step(rig, 5 * S);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    rig_sm(rig, 5, &rig->peer, HELD + 32, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, PS_SYS_SM_REJECTED), 0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    rig_sm(rig, 5, &rig->peer, RIG_TERM / 2 - 10 * SIZE, RIG_TERM / 2, 0); /* no padding so long */
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, PS_SYS_SM_REJECTED), 1);
    rig_close(rig);
}

/* A status message that states more than was sent counts up to what was. */
static void test_nothing_is_consumed_before_it_was_sent(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    rig_offer(rig, NULL, 1024 - PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    rig_sm(rig, 7, &rig->peer, RIG_TERM / 2, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_limit), 1024 + RIG_TERM / 2);
    rig_close(rig);
}

/* The receiver may still need retransmits when a stranger says that it is done. */
static void test_a_stranger_does_not_confirm_the_end(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_event_t event;
    rig_connect(rig);
    rig_offer(rig, NULL, 1024 - PS_HEADER_BYTES, PS_FLAG_UNFRAGMENTED);
    CHECK_EQ(ps_publication_drain(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 0);
    rig_sm(rig, 4711, &rig->peer, 0, RIG_TERM / 2, PS_SM_EOS);
    rig_step(rig, 2 * MS);
    CHECK_EQ(rig_event(rig, PS_EV_PUB_EOS_ACK, &event), 0);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 1024, RIG_TERM / 2, PS_SM_EOS);
    rig_step(rig, 2 * MS);
    CHECK_EQ(rig_event(rig, PS_EV_PUB_EOS_ACK, &event), 1);
    rig_close(rig);
}

static void test_receivers_time_out(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    ps_event_t event;
    rig_connect(rig);
    CHECK_EQ(rig_counter(rig, rig->receivers), 1);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2);
    for (int i = 0; i < 49; i++) {
        rig_step(rig, 100 * MS);
    }
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    rig_step(rig, 100 * MS);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    CHECK_EQ(rig_counter(rig, rig->limit), 0);
    CHECK_EQ(rig_counter(rig, rig->receivers), 0);
    CHECK(rig_event(rig, PS_EV_PUB_CONNECTED, &event) && event.connection.connected == 1);
    CHECK(rig_event(rig, PS_EV_PUB_CONNECTED, &event) && event.connection.connected == 0);
    rig_sm(rig, 6, &rig->peer, 0, 1024, 0);
    rig_step(rig, 0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    CHECK_EQ(rig_counter(rig, rig->limit), RIG_TERM / 2);
    rig_close(rig);
}

/* Who is required is gone for the strategy before it is for the connection: told at once. */
static void test_a_required_receiver_that_goes_is_reported(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST,
                                            .flow_control = PS_FC_MIN,
                                            .group_min_size = 1,
                                            .fc_timeout_ns = 2 * S });
    ps_event_t event;
    rig_connect(rig);
    CHECK(rig_event(rig, PS_EV_PUB_CONNECTED, &event) && event.connection.connected == 1);
    rig_step(rig, 1999 * MS);
    CHECK_EQ(rig_event(rig, PS_EV_PUB_CONNECTED, &event), 0);
    rig_step(rig, 2 * MS);
    CHECK(rig_event(rig, PS_EV_PUB_CONNECTED, &event) && event.connection.connected == 0);
    rig_close(rig);
}

static void test_idle_heartbeats_back_off(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    int32_t beats = 0;
    rig_connect(rig);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    memnet_discard(rig->net);
    rig_step(rig, 137 * MS);         /* off the grid of quiet streams */
    for (int i = 0; i < 1000; i++) { /* 100 ms apart for a second, then 1 s apart */
        rig_step(rig, 10 * MS);
        while (memnet_take(rig->net, &rig->got)) {
            CHECK_EQ(rig->got.length, PS_HEARTBEAT_BYTES);
            beats++;
            /* Quiet streams wake the sender together. */
            CHECK(i < 300 || rig->now_ns % (250 * MS) < 10 * MS);
        }
    }
    CHECK(beats >= 17 && beats <= 20);
    rig_close(rig);
}

/* Time from a status message of this receiver to the next heartbeat of the quiet stream. */
static int64_t time_to_heartbeat(rig_t *rig, int64_t receiver_id)
{
    const int64_t from_ns = rig->now_ns;
    rig_sm(rig, receiver_id, &rig->peer, 0, RIG_TERM / 2, 0);
    for (rig_step(rig, 0); !memnet_take(rig->net, &rig->got); rig_step(rig, 10 * MS)) {
    }
    CHECK_EQ(rig->got.length, PS_HEARTBEAT_BYTES);
    return rig->now_ns - from_ns;
}

/* A receiver shows an idle stream to its readers when the first heartbeat has arrived. */
static void test_a_new_receiver_of_a_quiet_stream_soon_gets_a_heartbeat(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_step(rig, 5 * S); /* quiet before anybody listens */
    memnet_discard(rig->net);
    CHECK(time_to_heartbeat(rig, 5) <= 110 * MS);
    rig_step(rig, 30 * MS);
    CHECK(time_to_heartbeat(rig, 6) <= 110 * MS);
    rig_step(rig, 30 * MS);
    CHECK(time_to_heartbeat(rig, 6) >= 700 * MS); /* known: the interval of idle streams */
    rig_close(rig);
}

static void test_manual_destinations(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MANUAL });
    const ps_addr_t one = memnet_addr(11, 1111), moved = memnet_addr(13, 1111);
    ps_event_t event;
    rig_step(rig, 0);
    CHECK_EQ(memnet_pending(rig->net), 0);
    CHECK_EQ(ps_send_endpoint_add_destination(rig->driver, rig->endpoint, 77, &one), PS_OK);
    rig_step(rig, 1 * MS);
    CHECK(rig_take(rig)->to.port == 1111);
    rig_step(rig, 5 * S);
    CHECK(rig_event(rig, PS_EV_SILENT, &event) && event.silent.destination_id == 77 &&
          event.silent.source.ip[3] == 11);
    memnet_discard(rig->net);
    CHECK_EQ(ps_send_endpoint_set_address(rig->driver, rig->endpoint, 77, &moved), PS_OK);
    rig_step(rig, 100 * MS);
    CHECK_EQ(rig_take(rig)->to.ip[3], 13);
    CHECK_EQ(ps_send_endpoint_remove_destination(rig->driver, rig->endpoint, 77), PS_OK);
    memnet_discard(rig->net);
    rig_step(rig, 1 * S);
    CHECK_EQ(memnet_pending(rig->net), 0);
    for (int i = 0; i < 64; i++) {
        CHECK_EQ(ps_send_endpoint_add_destination(rig->driver, rig->endpoint, i, &one), PS_OK);
    }
    CHECK_EQ(ps_send_endpoint_add_destination(rig->driver, rig->endpoint, 99, &one), PS_E_NO_SPACE);
    rig_close(rig);
}

static void test_multicast_listens_to_the_control_group(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST });
    rig_connect(rig); /* its status message comes by the control socket */
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 1);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    CHECK_EQ(rig_take(rig)->to.port, RIG_PORT);
    rig_close(rig);
}

static void test_short_sends_are_repeated(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    for (int i = 0; i < 5; i++) {
        rig_offer(rig, NULL, 1376, PS_FLAG_UNFRAGMENTED);
    }
    memnet_room(rig->net, 2);
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 2 * 1408);
    CHECK(rig_counter(rig, PS_SYS_SHORT_SENDS) > 0);
    CHECK_EQ(atomic_load(&rig->slot->sent_ordinal), 2);
    rig_step(rig, 0); /* what was due already */
    CHECK_EQ(ps_driver_next_deadline_ns(rig->driver, rig->now_ns), rig->now_ns + MS / 10);
    memnet_room(rig->net, -1);
    rig_step(rig, MS / 10);
    CHECK_EQ(rig_counter(rig, rig->sender_position), 5 * 1408);
    CHECK_EQ(memnet_pending(rig->net), 5);
    rig_close(rig);
}

static void test_group_retransmits_have_a_pool(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_MULTICAST, .retransmit_delay_ns = MS });
    uint8_t out[PS_CONTROL_MAX];
    rig_connect(rig);
    for (int i = 0; i < 20; i++) {
        rig_offer(rig, NULL, 32, PS_FLAG_UNFRAGMENTED);
    }
    rig_step(rig, 0);
    memnet_discard(rig->net);
    for (int i = 0; i < 17; i++) {
        const ps_nak_t nak = { GOLDEN_SESSION, GOLDEN_STREAM, GOLDEN_TERM, i * 64, 64 };
        rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &nak));
    }
    rig_step(rig, 0);
    CHECK_EQ(rig_counter(rig, PS_SYS_RETRANSMIT_OVERFLOW), 1);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_step(rig, 1 * MS);
    CHECK_EQ(memnet_pending(rig->net), 16);
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(rig_take(rig)->length, 64);
        CHECK_EQ(rig->got.data[8], (i * 64) & 0xFF);
    }
    const ps_nak_t bad = { GOLDEN_SESSION, GOLDEN_STREAM, GOLDEN_TERM, 32, RIG_TERM };
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &bad));
    const ps_nak_t ahead = { GOLDEN_SESSION, GOLDEN_STREAM, GOLDEN_TERM + 1, 0, 64 };
    rig_inject(rig, &rig->peer, out, ps_wire_build_nak(out, &ahead));
    rig_step(rig, 20 * MS);
    CHECK_EQ(rig_counter(rig, PS_SYS_INVALID_PACKETS), 1);
    CHECK_EQ(memnet_pending(rig->net), 0);
    rig_close(rig);
}

static void test_revoke(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_connect(rig);
    rig_claim(rig, 10, 0);
    CHECK_EQ(ps_publication_revoke(rig->driver, rig->pub), PS_OK);
    rig_step(rig, 1 * MS);
    CHECK_EQ(rig_take(rig)->length, PS_HEARTBEAT_BYTES);
    CHECK_EQ(rig->got.data[5], 0xF0);
    CHECK_EQ(atomic_load(&rig->log.meta->is_revoked), 1);
    CHECK_EQ(atomic_load(&rig->log.meta->is_connected), 0);
    CHECK_EQ(atomic_load(&rig->log.meta->end_of_stream), 64);
    CHECK_EQ(rig_counter(rig, PS_SYS_PUBLICATIONS_REVOKED), 1);
    rig_close(rig);
}

static void test_error_frames_and_send_time(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .timestamp_offset = -8 });
    uint8_t frame[256];
    ps_event_t event;
    rig_connect(rig);
    rig_inject(rig, &rig->peer, frame, golden("err", frame));
    rig_step(rig, 0);
    CHECK(rig_event(rig, PS_EV_REMOTE_ERROR, &event) && event.remote_error.code == 13);
    CHECK(strcmp(event.remote_error.text, "nope") == 0 &&
          event.remote_error.receiver_id == GOLDEN_RECEIVER);
    rig_offer(rig, "x", 1, PS_FLAG_UNFRAGMENTED);
    rig_step(rig, 0);
    int64_t stamp;
    rig_take(rig);
    memcpy(&stamp, rig->got.data + 24, sizeof(stamp));
    CHECK_EQ(stamp, rig->now_ns + ps_context_epoch_offset_ns(&rig->driver->context));
    rig_close(rig);
}

static void test_deadline_is_the_next_timer(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_step(rig, 0);
    const int64_t deadline = ps_driver_next_deadline_ns(rig->driver, rig->now_ns);
    CHECK(deadline > rig->now_ns && deadline <= rig->now_ns + 100 * MS);
    int32_t wakes = 0;
    for (int64_t end = rig->now_ns + 10 * S; rig->now_ns < end; wakes++) {
        const int64_t next = ps_driver_next_deadline_ns(rig->driver, rig->now_ns);
        CHECK(next > rig->now_ns);
        rig_step(rig, next - rig->now_ns);
    }
    CHECK(wakes < 250); /* a SETUP each 100 ms and a few looks */
    CHECK(memnet_pending(rig->net) >= 100 && memnet_pending(rig->net) <= 102);
    rig_close(rig);
}

/* A receiver that rejected the stream sends no status message any more: the publication is not
 * connected, at once; with the next status message it is again. */
static void test_a_rejection_disconnects_at_once(void)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    uint8_t frame[256];
    ps_event_t event;
    ps_publication_status_t status;
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, 8192, 0);
    rig_step(rig, 1 * MS);
    ps_publication_get_status(rig->pub, &status);
    CHECK(status.is_connected);
    rig_inject(rig, &rig->peer, frame, golden("err", frame));
    rig_step(rig, 1 * MS);
    ps_publication_get_status(rig->pub, &status);
    CHECK(!status.is_connected);
    CHECK(rig_event(rig, PS_EV_REMOTE_ERROR, &event) &&
          event.remote_error.source.port == rig->peer.port);
    CHECK_EQ(memcmp(event.remote_error.source.ip, rig->peer.ip, 4), 0);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer, 0, 8192, 0);
    rig_step(rig, 1 * MS);
    ps_publication_get_status(rig->pub, &status);
    CHECK(status.is_connected);
    rig_close(rig);
}

int main(void)
{
    test_a_rejection_disconnects_at_once();
    test_worked_session();
    test_setup_on_request_and_round_trip();
    test_trailer_only_when_advertised();
    test_window_is_respected();
    test_frames_are_packed_to_the_mtu();
    test_pad_is_a_header_only();
    test_a_claim_stops_the_sender();
    test_nonsense_in_the_log_is_not_sent();
    test_status_messages_are_checked();
    test_who_granted_padding_is_still_heard();
    test_nothing_is_consumed_before_it_was_sent();
    test_a_stranger_does_not_confirm_the_end();
    test_receivers_time_out();
    test_a_required_receiver_that_goes_is_reported();
    test_idle_heartbeats_back_off();
    test_a_new_receiver_of_a_quiet_stream_soon_gets_a_heartbeat();
    test_manual_destinations();
    test_multicast_listens_to_the_control_group();
    test_short_sends_are_repeated();
    test_group_retransmits_have_a_pool();
    test_revoke();
    test_error_frames_and_send_time();
    test_deadline_is_the_next_timer();
    return 0;
}
