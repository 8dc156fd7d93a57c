/* SPDX-License-Identifier: Apache-2.0
 *
 * standalone_main.c: runs a fuzz target without a fuzzing engine: its kept corpus, then mutations
 * of it from a seed.  Usage: TARGET corpus-directory [runs [seed]].  A failure names the run,
 * which the same seed repeats; the input is written to ./crash-<target>.
 */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>

#include "fuzz.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"

enum { MOST_SEEDS = 256, MOST_BYTES = 8192 };

typedef struct seed {
    uint8_t *data;
    size_t length;
} seed_t;

static seed_t seeds[MOST_SEEDS];
static size_t seed_count;
static uint8_t input[MOST_BYTES];
static volatile size_t input_length;
static volatile unsigned long run_number;

static void read_seed(const char *directory, const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || seed_count == MOST_SEEDS) {
        fprintf(stderr, "cannot take %s\n", path);
        exit(2);
    }
    seed_t *seed = &seeds[seed_count++];
    seed->data = malloc(MOST_BYTES);
    seed->length = seed->data != NULL ? fread(seed->data, 1, MOST_BYTES, file) : 0;
    (void)fclose(file);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not the locale's order: runs must repeat */
}

static void read_corpus(const char *directory)
{
    struct dirent **entries;
    const int count = scandir(directory, &entries, NULL, by_name);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.') {
            read_seed(directory, entries[i]->d_name);
        }
        free(entries[i]);
    }
    if (count < 0 || seed_count == 0) {
        fprintf(stderr, "no corpus in %s\n", directory);
        exit(2);
    }
    free(entries);
}

static void run_input(void)
{
    (void)LLVMFuzzerTestOneInput(input, input_length);
    run_number++;
}

/* Values that sit on the edge of a rule. */
static uint32_t edge_value(ps_random_t *random)
{
    static const uint32_t edges[] = { 0,         1,        8,          20,         28,
                                      31,        32,       33,         36,         40,
                                      44,        64,       1408,       65504,      65536,
                                      1U << 29,  1U << 30, 0x7FFFFFFF, 0x80000000, 0xFFFFFFE0,
                                      0xFFFFFFFF };
    return edges[ps_random_below(random, sizeof edges / sizeof edges[0])];
}

static void mutate(ps_random_t *random)
{
    size_t length = input_length;
    switch (ps_random_below(random, 7)) {
    case 0: /* a bit */
        if (length > 0) {
            input[ps_random_below(random, length)] ^= (uint8_t)(1U << ps_random_below(random, 8));
        }
        break;
    case 1: /* a byte */
        if (length > 0) {
            input[ps_random_below(random, length)] = (uint8_t)ps_random_next(random);
        }
        break;
    case 2: /* a field */
        if (length >= 4) {
            const uint32_t value = edge_value(random);
            memcpy(input + 4 * ps_random_below(random, length / 4), &value, 4);
        }
        break;
    case 3: /* shorter */ length = ps_random_below(random, length + 1); break;
    case 4: /* longer */
        while (length < MOST_BYTES && ps_random_below(random, 16) != 0) {
            input[length++] = (uint8_t)ps_random_next(random);
        }
        break;
    default: { /* a piece of another seed, here or at the end */
        const seed_t *other = &seeds[ps_random_below(random, seed_count)];
        const size_t from = ps_random_below(random, other->length + 1);
        const size_t at = ps_random_below(random, 2) ? length : ps_random_below(random, length + 1);
        size_t size = ps_random_below(random, other->length - from + 1);
        size = size > MOST_BYTES - at ? MOST_BYTES - at : size;
        memcpy(input + at, other->data + from, size);
        length = at + size > length ? at + size : length;
        break;
    }
    }
    input_length = length;
}

static void on_abort(int signal_number)
{
    (void)signal_number;
    static const char name[] = "crash-input";
    const int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (fd >= 0 && write(fd, input, input_length) >= 0) {
        static const char text[] = "the input is in ./crash-input\n";
        (void)!write(2, text, sizeof text - 1);
    }
    _exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s corpus-directory [runs [seed]]\n", argv[0]);
        return 2;
    }
    const unsigned long runs = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    const unsigned long long seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    (void)signal(SIGABRT, on_abort);
    read_corpus(argv[1]);
    for (size_t i = 0; i < seed_count; i++) {
        memcpy(input, seeds[i].data, seeds[i].length);
        input_length = seeds[i].length;
        run_input();
    }
    ps_random_t random;
    ps_random_seed(&random, seed);
    for (unsigned long i = 0; i < runs; i++) {
        const seed_t *start = &seeds[ps_random_below(&random, seed_count)];
        memcpy(input, start->data, start->length);
        input_length = start->length;
        const uint64_t steps = 1 + ps_random_below(&random, 6);
        for (uint64_t step = 0; step < steps; step++) {
            mutate(&random);
        }
        run_input();
    }
    printf("%zu seeds, %lu mutations from seed %llu\n", seed_count, runs, seed);
    for (size_t i = 0; i < seed_count; i++) {
        free(seeds[i].data);
    }
    return 0;
}
