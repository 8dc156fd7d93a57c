/* SPDX-License-Identifier: Apache-2.0
 *
 * test_credit_kills.c: publishers of a stream with credits that stop at an instruction, and die
 * there or continue later. No credit may get lost, and none may be returned twice.
 *
 * The test takes some stops of each case. PENSTOCK_STOPS=all takes each instruction, and
 * PENSTOCK_STOPS_SEED draws other stops. */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ps_client_publication.h"
#include "ps_credit.h"
#include "ps_publication.h"
#include "ps_random.h"
#include "sender_rig.h"

/* With MANY credits, a thread of a shared stream leases some. */
enum {
    NUMBER = 8,
    MANY = 256,
    RECEIVER = 5,
    VICTIM = 100,
    SURVIVOR = 101,
    STOPS = 3,
    STEPS_MOST = 200000
};

typedef void operation_t(ps_pub_t *);

/* ---- what the victim does -------------------------------------------------------------------- */

static const uint8_t bytes[4096];

static void offer(ps_pub_t *pub)
{
    (void)ps_pub_offer(pub, bytes, 40, 0);
}

static void offer_fragments(ps_pub_t *pub)
{
    (void)ps_pub_offer(pub, bytes, 3000, 0);
}

static void offer_batch(ps_pub_t *pub)
{
    int32_t accepted = 0;
    (void)ps_pub_offer_strided(pub, bytes, 32, 3, &accepted);
}

/* More messages than there are credits. */
static void offer_all(ps_pub_t *pub)
{
    int32_t accepted = 0;
    (void)ps_pub_offer_strided(pub, bytes, 32, 2 * NUMBER, &accepted);
    (void)ps_pub_offer(pub, bytes, 40, 0);
}

static void claim_and_commit(ps_pub_t *pub)
{
    ps_claim_t claim;
    if (ps_pub_try_claim(pub, 100, &claim) > 0) {
        (void)ps_pub_commit(pub, &claim, 0);
    }
}

static void claim_and_abort(ps_pub_t *pub)
{
    ps_claim_t claim;
    if (ps_pub_try_claim(pub, 100, &claim) > 0) {
        (void)ps_pub_abort(pub, &claim);
    }
}

/* Two claims, the second of which is committed first. */
static void claim_twice(ps_pub_t *pub)
{
    ps_claim_t first, second;
    const bool both =
        ps_pub_try_claim(pub, 100, &first) > 0 && ps_pub_try_claim(pub, 10, &second) > 0;
    if (both) {
        (void)ps_pub_commit(pub, &second, 0);
        (void)ps_pub_commit(pub, &first, 0);
    }
}

typedef struct operation {
    const char *name;
    operation_t *run;
} operation_row_t;

static const operation_row_t OPERATIONS[] = {
    { "offer", offer },
    { "offer of fragments", offer_fragments },
    { "batch", offer_batch },
    { "batch of more than the credits", offer_all },
    { "claim and commit", claim_and_commit },
    { "claim and abort", claim_and_abort },
    { "two claims", claim_twice },
};

/* ---- the world ------------------------------------------------------------------------------- */

enum ending { DIES, CONTINUES, ENDINGS };

typedef struct scene {
    const operation_row_t *operation;
    int32_t ending;
    bool exclusive;
    bool warm;      /* the victim has offered before */
    int64_t number; /* credits */
    rig_t *rig;
    ps_client_t *client; /* of the survivor */
    ps_pub_t *survivor;
    int32_t victim_slot;
    pid_t victim;
    int64_t limit; /* stated last */
    int64_t steps;
} scene_t;

static void fail(const scene_t *scene, const char *what, int64_t is, int64_t expected)
{
    fprintf(stderr,
            "%s%s, %lld credits, %s, stopped at instruction %lld, %s: %s is %lld, expected %lld\n",
            scene->exclusive ? "exclusive: " : "", scene->operation->name, (long long)scene->number,
            scene->warm ? "after others" : "the first", (long long)scene->steps,
            scene->ending == DIES ? "dies" : "continues", what, (long long)is, (long long)expected);
    exit(1);
}

static int64_t messages_in_log(const scene_t *scene)
{
    int64_t messages = 0;
    int64_t position = 0;
    const int64_t tail = rig_tail(scene->rig);
    while (position < tail) {
        ps_frame_t *frame = ps_frame_at(&scene->rig->log, position);
        const int32_t length = ps_frame_length_acquire(frame);
        if (length <= 0) {
            return messages;
        }
        messages += ps_frame_messages(frame);
        position += ps_align32(length);
    }
    return messages;
}

/* Publishers never publish more than was granted. */
static void check_bound(const scene_t *scene)
{
    const int64_t messages = messages_in_log(scene);
    if (messages > scene->limit) {
        fail(scene, "the number of published messages", messages, scene->limit);
    }
}

static void say(const scene_t *scene)
{
    rig_t *rig = scene->rig;
    const int64_t position = rig_counter(rig, rig->sender_position);
    const ps_trailer_t trailer = { .capabilities =
                                       PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS,
                                   .ordinal = -1,
                                   .credit_limit = scene->limit,
                                   .released_ordinal = scene->limit - scene->number,
                                   .credit_messages = scene->number,
                                   .credit_epoch = 7 };
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = ps_term_id_at(position, rig->log.shift, GOLDEN_TERM),
                         .term_offset = (int32_t)(position & rig->log.term_mask),
                         .window = RIG_TERM / 2,
                         .receiver_id = RECEIVER };
    uint8_t out[PS_CONTROL_MAX];
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
    rig_step(rig, MS);
}

/* The receiver has released everything that was sent. */
static void state(scene_t *scene)
{
    scene->limit = atomic_load(&scene->rig->slot->sent_ordinal) + scene->number;
    say(scene);
}

static ps_pub_t *open_publisher(const scene_t *scene, int64_t id, int32_t slot,
                                ps_client_t **client)
{
    const rig_t *rig = scene->rig;
    const ps_client_params_t opened = { .directory = rig->directory,
                                        .client_id = id,
                                        .client_slot = slot,
                                        .sender_wake_fd = -1,
                                        .receiver_wake_fd = -1,
                                        .watch_fd = -1 };
    const ps_pub_params_t params = { .log_path = rig->log_path,
                                     .registration_id = 1,
                                     .publication_slot =
                                         (int32_t)(rig->slot - rig->shared->publications),
                                     .limit_counter_id = rig->limit,
                                     .exclusive = scene->exclusive };
    ps_pub_t *pub = NULL;
    CHECK_EQ(ps_client_open(&opened, client), PS_OK);
    CHECK_EQ(ps_pub_open(*client, &params, &pub), PS_OK);
    return pub;
}

static void open_survivor(scene_t *scene)
{
    scene->survivor =
        open_publisher(scene, SURVIVOR, rig_add_client(scene->rig, SURVIVOR), &scene->client);
}

static void begin(scene_t *scene)
{
    int status = 0;
    scene->rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST, .sealed = scene->exclusive });
    scene->steps = 0;
    scene->limit = 0;
    scene->victim_slot = rig_add_client(scene->rig, VICTIM);
    rig_step(scene->rig, 0);
    state(scene);
    if (!scene->exclusive) {
        open_survivor(scene);
    }
    scene->victim = fork();
    CHECK(scene->victim >= 0);
    if (scene->victim == 0) {
        ps_client_t *client;
        ps_pub_t *pub = open_publisher(scene, VICTIM, scene->victim_slot, &client);
        for (int32_t i = 0; scene->warm && i < 2; i++) {
            (void)ps_pub_offer(pub, bytes, 40, 0);
        }
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0) {
            _exit(2);
        }
        scene->operation->run(pub);
        raise(SIGKILL);
    }
    CHECK_EQ(waitpid(scene->victim, &status, 0), scene->victim);
    CHECK(WIFSTOPPED(status));
    rig_step(scene->rig, MS);
}

/* Runs `steps` instructions. Returns false if the victim has ended before. */
static bool run(scene_t *scene, int64_t steps)
{
    int status = 0;
    while (scene->steps < steps) {
        CHECK_EQ(ptrace(PTRACE_SINGLESTEP, scene->victim, NULL, NULL), 0);
        CHECK_EQ(waitpid(scene->victim, &status, 0), scene->victim);
        if (!WIFSTOPPED(status)) {
            return false;
        }
        scene->steps++;
    }
    return true;
}

/* The sender pads over claims that stay open. */
static void wait_for_unblock(const scene_t *scene)
{
    for (int32_t i = 0; i < 10; i++) {
        rig_step(scene->rig, 2 * S);
        say(scene);
        check_bound(scene);
    }
}

/* Another process continues the exclusive publication before the conductor knows of the death. */
static void succeed(scene_t *scene)
{
    open_survivor(scene);
    CHECK(ps_pub_take_over(scene->survivor, 0, 0) >= 0);
    rig_step(scene->rig, MS);
    const int64_t sent = rig_counter(scene->rig, scene->rig->sender_position);
    if (sent != rig_tail(scene->rig)) {
        fail(scene, "the sender position after a successor began", sent, rig_tail(scene->rig));
    }
}

/* The conductor returns the credits of a dead client. */
static void bury(scene_t *scene)
{
    rig_t *rig = scene->rig;
    if (scene->exclusive) {
        succeed(scene);
    }
    ps_slot_free(rig->shared, PS_SLOT_CLIENT, scene->victim_slot);
    CHECK_EQ(ps_publication_remove_client(rig->driver, rig->pub, scene->victim_slot), PS_OK);
    CHECK_EQ(ps_publication_unblock(rig->driver, rig->pub, scene->victim_slot), PS_OK);
    rig_step(rig, MS);
    if (!scene->exclusive) {
        wait_for_unblock(scene);
    }
}

/* The daemon pads over the claims of a client that only stopped, and other publishers use all
 * credits. */
static void outlast(scene_t *scene)
{
    wait_for_unblock(scene);
    while (!scene->exclusive && ps_pub_offer(scene->survivor, bytes, 8, 0) > 0) {
        rig_step(scene->rig, MS);
        check_bound(scene);
    }
}

/* Each credit is spent or available, and as many messages as credits are accepted. */
static void check_all_are_there(scene_t *scene)
{
    for (int32_t round = 0; round < 2; round++) {
        for (int32_t i = 0; i < 4; i++) {
            rig_step(scene->rig, 2 * MS);
        }
        state(scene);
        for (int32_t i = 0; i < 4; i++) {
            rig_step(scene->rig, 2 * MS);
        }
        int64_t accepted = 0;
        int64_t code = 1;
        for (int32_t i = 0; code > 0 || code == PS_ADMIN_ACTION; i++) {
            code = ps_pub_offer(scene->survivor, bytes, 8, 0);
            accepted += code > 0;
            CHECK(i < 4 * scene->number);
        }
        if (accepted != scene->number || code != PS_NO_CREDIT) {
            fail(scene, "the number of accepted messages", accepted, scene->number);
        }
        rig_step(scene->rig, MS);
        check_bound(scene);
        const int64_t sent = atomic_load(&scene->rig->slot->sent_ordinal);
        if (sent != messages_in_log(scene)) {
            fail(scene, "the number of sent messages", sent, messages_in_log(scene));
        }
    }
}

static void end(scene_t *scene)
{
    ps_pub_close(scene->survivor);
    ps_client_close(scene->client);
    rig_close(scene->rig);
}

/* Returns false if the victim has fewer instructions than that. */
static bool stop_at(scene_t *scene, int64_t instruction)
{
    int status = 0;
    begin(scene);
    const bool stopped = run(scene, instruction);
    rig_step(scene->rig, MS);
    check_bound(scene);
    if (stopped && scene->ending == CONTINUES) {
        outlast(scene);
        CHECK_EQ(ptrace(PTRACE_CONT, scene->victim, NULL, NULL), 0);
        CHECK_EQ(waitpid(scene->victim, &status, 0), scene->victim);
        if (WIFSTOPPED(status)) { /* its own SIGKILL comes next */
            CHECK_EQ(kill(scene->victim, SIGKILL), 0);
            CHECK_EQ(waitpid(scene->victim, &status, 0), scene->victim);
        }
        if (!scene->exclusive) {
            while (ps_pub_offer(scene->survivor, bytes, 8, 0) > 0) {
                check_bound(scene);
            }
        }
        check_bound(scene);
    } else if (stopped) {
        CHECK_EQ(kill(scene->victim, SIGKILL), 0);
        CHECK_EQ(waitpid(scene->victim, &status, 0), scene->victim);
    }
    bury(scene);
    check_all_are_there(scene);
    end(scene);
    return stopped;
}

static int64_t count_instructions(scene_t scene)
{
    scene.ending = DIES;
    CHECK(!stop_at(&scene, STEPS_MOST));
    return scene.steps;
}

static int64_t take_stops(scene_t *scene, bool all, ps_random_t *random)
{
    scene_t first = *scene;
    first.ending = DIES;
    /* The first use of a function takes longer. The end of a case uses them; to step through the
     * victim as well would take as long as a count. */
    CHECK(stop_at(&first, 0));
    const int64_t instructions = count_instructions(*scene);
    const int64_t stops = all ? instructions : STOPS;
    int64_t stopped = 0;
    CHECK(instructions > 50);
    for (int64_t i = 0; i < stops; i++) {
        /* One stop of each part, so that the parts have the same number. */
        const int64_t from = i * instructions / stops;
        const int64_t span = (i + 1) * instructions / stops - from;
        const int64_t at =
            from + (int64_t)(ps_random_next(random) % (uint64_t)(span > 0 ? span : 1));
        stopped += stop_at(scene, at); /* the number of instructions varies a little */
    }
    CHECK(stopped > stops / 2);
    return stopped;
}

int main(void)
{
    const char *wanted = getenv("PENSTOCK_STOPS");
    const char *seed = getenv("PENSTOCK_STOPS_SEED");
    const bool all = wanted != NULL && strcmp(wanted, "all") == 0;
    ps_random_t random;
    ps_random_seed(&random, seed != NULL ? strtoull(seed, NULL, 16) : 1);
    int64_t stops = 0;
    for (size_t i = 0; i < sizeof OPERATIONS / sizeof OPERATIONS[0]; i++) {
        for (int32_t variant = 0; variant < 8 * ENDINGS; variant++) {
            scene_t scene = { .operation = &OPERATIONS[i],
                              .ending = variant & 1,
                              .exclusive = (variant & 2) != 0,
                              .warm = (variant & 4) != 0,
                              .number = (variant & 8) != 0 ? MANY : NUMBER };
            stops += take_stops(&scene, all, &random);
        }
    }
    printf("%lld stops\n", (long long)stops);
    return 0;
}
