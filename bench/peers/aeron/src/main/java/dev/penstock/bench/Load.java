// SPDX-License-Identifier: Apache-2.0
package dev.penstock.bench;

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.logbuffer.FragmentHandler;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.agrona.BitUtil;
import org.agrona.BufferUtil;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The measured clients.
 *
 * <pre>ROLE --dir= --channel= [--back=] --size= --warmup-ns= --measure-ns= --idle=
 * [--streams=]</pre>
 */
public final class Load {
    private static final int STREAM = 1001;
    private static final int POLL_LIMIT = 256;
    private static final int LOOK_EVERY = 256;
    private static final long DRAIN_NS = 5_000_000_000L;

    private Load() {
    }

    public static void main(final String[] args) throws InterruptedException {
        final Aeron.Context context = new Aeron.Context()
            .aeronDirectoryName(Harness.argument(args, "dir", ""))
            .idleStrategy(Harness.idle("backoff:1:1:1000000:16000000"));
        Harness.listen();
        try (Aeron aeron = Aeron.connect(context)) {
            switch (args[0]) {
                case "pub":
                    publish(aeron, args);
                    break;
                case "sub":
                    new Receiver(args).run(aeron, args);
                    break;
                case "ping":
                    Trips.ping(aeron, args);
                    break;
                case "pong":
                    Trips.pong(aeron, args);
                    break;
                case "hold":
                    hold(aeron, args);
                    break;
                default:
                    throw new IllegalArgumentException(args[0]);
            }
            Thread.currentThread().join();
        }
    }

    static IdleStrategy idle(final String[] args) {
        return Harness.idle(Harness.argument(args, "idle", "backoff:10:20:1000:1000000"));
    }

    static UnsafeBuffer message(final int size) {
        return new UnsafeBuffer(BufferUtil.allocateDirectAligned(size, BitUtil.CACHE_LINE_LENGTH));
    }

    static void awaitConnected(final Publication publication) throws InterruptedException {
        while (!publication.isConnected()) {
            Thread.sleep(1);
        }
    }

    private static void publish(final Aeron aeron, final String[] args) throws InterruptedException {
        final int size = (int) Harness.number(args, "size", 32);
        final IdleStrategy idle = idle(args);
        final UnsafeBuffer buffer = message(size);
        final ExclusivePublication publication =
            aeron.addExclusivePublication(Harness.argument(args, "channel", ""), STREAM);
        awaitConnected(publication);
        Harness.say("ready", "");
        Harness.awaitGo();
        long number = 0;
        while (!Harness.stopped) {
            for (int i = 0; i < LOOK_EVERY; i++) {
                buffer.putLong(0, number);
                buffer.putLong(size - 8, (number & 0xff) * 0x0101010101010101L);
                while (publication.offer(buffer, 0, size) < 0) {
                    idle.idle();
                }
                idle.reset();
                number++;
            }
        }
        Harness.say("done", "\"messages\": " + number);
    }

    private static void hold(final Aeron aeron, final String[] args) throws InterruptedException {
        final int streams = (int) Harness.number(args, "streams", 100);
        final String channel = Harness.argument(args, "channel", "");
        final List<Object> held = new ArrayList<>();
        final boolean publisher = Harness.argument(args, "side", "pub").equals("pub");
        for (int i = 0; i < streams; i++) {
            held.add(publisher
                ? aeron.addExclusivePublication(channel, STREAM + i)
                : aeron.addSubscription(channel, STREAM + i));
        }
        Harness.say("ready", "");
        for (final Object one : held) {
            while (!(one instanceof Subscription
                ? ((Subscription) one).isConnected() : ((Publication) one).isConnected())) {
                Thread.sleep(1);
            }
        }
        Harness.say("connected", "");
    }

    /** Counts and hashes; its marks are the measurement. */
    private static final class Receiver implements FragmentHandler {
        private final long warmupNs;
        private final long measureNs;
        private long messages;
        private long hash;
        private long outOfOrder;

        Receiver(final String[] args) {
            warmupNs = Harness.number(args, "warmup-ns", 1_000_000_000L);
            measureNs = Harness.number(args, "measure-ns", 3_000_000_000L);
        }

        @Override
        public void onFragment(final DirectBuffer buffer, final int offset, final int length,
            final io.aeron.logbuffer.Header header) {
            final long first = buffer.getLong(offset);
            final long last = buffer.getLong(offset + length - 8);
            if (first != messages) {
                outOfOrder++;
            }
            hash = (hash ^ first) * 0x9E3779B97F4A7C15L + last;
            messages++;
        }

        void run(final Aeron aeron, final String[] args) {
            final IdleStrategy idle = idle(args);
            final Subscription subscription =
                aeron.addSubscription(Harness.argument(args, "channel", ""), STREAM);
            Harness.say("ready", "");
            long nextNs = 0;
            long drainNs = 0;
            int marks = 0;
            while (true) {
                int fragments = 0;
                for (int i = 0; i < 16; i++) {
                    final int count = subscription.poll(this, POLL_LIMIT);
                    fragments += count;
                    idle.idle(count);
                }
                final long nowNs = System.nanoTime();
                if (nextNs == 0) {
                    nextNs = fragments > 0 ? nowNs + warmupNs : 0;
                } else if (marks < 2 && nowNs >= nextNs) {
                    Harness.say("mark", "\"messages\": " + messages + ", \"ns\": " + nowNs);
                    nextNs = nowNs + measureNs;
                    marks++;
                }
                if (Harness.expected >= 0) {
                    drainNs = drainNs == 0 ? nowNs + DRAIN_NS : drainNs;
                    if (messages >= Harness.expected || nowNs > drainNs) {
                        break;
                    }
                }
            }
            Harness.say("done", "\"messages\": " + messages + ", \"hash\": \""
                + String.format("%016x", hash) + "\", \"out_of_order\": " + outOfOrder);
        }
    }

    /** Round trips. */
    private static final class Trips {
        private static final int MAX_TRIPS = 4_000_000;

        static void ping(final Aeron aeron, final String[] args) throws InterruptedException {
            final int size = (int) Harness.number(args, "size", 32);
            final UnsafeBuffer buffer = message(size);
            final IdleStrategy idle = idle(args);
            final long[] times = new long[MAX_TRIPS];
            final long[] echoed = {-1};
            final FragmentHandler handler =
                (data, offset, length, header) -> echoed[0] = data.getLong(offset);
            final Subscription pongs =
                aeron.addSubscription(Harness.argument(args, "back", ""), STREAM);
            final ExclusivePublication pings =
                aeron.addExclusivePublication(Harness.argument(args, "channel", ""), STREAM);
            awaitConnected(pings);
            while (!pongs.isConnected()) {
                Thread.sleep(1);
            }
            Harness.say("ready", "");
            Harness.awaitGo();
            final long warmupNs = Harness.number(args, "warmup-ns", 1_000_000_000L);
            final long measureNs = Harness.number(args, "measure-ns", 3_000_000_000L);
            trips(pings, pongs, buffer, size, idle, handler, echoed, times, warmupNs);
            Harness.say("mark", "\"messages\": 0, \"ns\": " + System.nanoTime());
            final int count =
                trips(pings, pongs, buffer, size, idle, handler, echoed, times, measureNs);
            Harness.say("mark", "\"messages\": " + count + ", \"ns\": " + System.nanoTime());
            Arrays.sort(times, 0, count);
            Harness.say("done", "\"messages\": " + count
                + ", \"p50_us\": " + at(times, count, 0.5)
                + ", \"p99_us\": " + at(times, count, 0.99)
                + ", \"p999_us\": " + at(times, count, 0.999));
        }

        private static double at(final long[] times, final int count, final double share) {
            return times[Math.min(count - 1, (int) (share * count))] / 1000.0;
        }

        private static int trips(final ExclusivePublication pings, final Subscription pongs,
            final UnsafeBuffer buffer, final int size, final IdleStrategy idle,
            final FragmentHandler handler, final long[] echoed, final long[] times,
            final long spanNs) {
            final long endNs = System.nanoTime() + spanNs;
            int count = 0;
            long beginNs = System.nanoTime();
            while (beginNs < endNs && count < MAX_TRIPS) {
                buffer.putLong(0, count);
                while (pings.offer(buffer, 0, size) < 0) {
                    idle.idle();
                }
                idle.reset();
                while (pongs.poll(handler, 1) == 0) {
                    idle.idle();
                }
                idle.reset();
                final long nowNs = System.nanoTime();
                if (echoed[0] != count) {
                    throw new IllegalStateException("the echo is another message");
                }
                times[count++] = nowNs - beginNs;
                beginNs = nowNs;
            }
            return count;
        }

        static void pong(final Aeron aeron, final String[] args) throws InterruptedException {
            final IdleStrategy idle = idle(args);
            final Subscription pings =
                aeron.addSubscription(Harness.argument(args, "channel", ""), STREAM);
            final ExclusivePublication pongs =
                aeron.addExclusivePublication(Harness.argument(args, "back", ""), STREAM);
            final FragmentHandler handler = (data, offset, length, header) -> {
                while (pongs.offer(data, offset, length) < 0) {
                    Thread.onSpinWait();
                }
            };
            Harness.say("ready", "");
            while (true) {
                idle.idle(pings.poll(handler, 1));
            }
        }
    }
}
