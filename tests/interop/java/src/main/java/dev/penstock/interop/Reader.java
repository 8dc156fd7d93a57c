// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Subscription;
import io.aeron.logbuffer.FragmentHandler;
import java.nio.ByteOrder;

/**
 * Reads numbered messages, a batch at each turn of a fixed cadence, and counts those that are
 * missing: the counterpart of {@code support/cadence.py}.  After a line on standard input it takes
 * the rest as fast as it can; after a message that says that it is behind all, it reports "done".
 *
 * <pre>--dir= --channel= --stream= [--batch=N --cadence-ns=N]</pre>
 */
public final class Reader {
    private long expected = -1;
    private long messages;
    private long missed;
    private boolean ended;

    private Reader() {
    }

    public static void main(final String[] arguments) throws Exception {
        new Reader().run(new Args(arguments));
    }

    private void run(final Args args) throws Exception {
        final long batch = args.number("batch", 0);
        final long cadence = args.number("cadence-ns", 0);
        final Aeron.Context context = new Aeron.Context().aeronDirectoryName(args.text("dir"));
        final FragmentHandler handler = new FragmentAssembler((buffer, offset, length, header) ->
            take(buffer.getLong(offset, ByteOrder.LITTLE_ENDIAN),
                buffer.getLong(offset + Long.BYTES, ByteOrder.LITTLE_ENDIAN) != 0));
        try (Aeron aeron = Aeron.connect(context);
            Subscription subscription = aeron.addSubscription(args.text("channel"),
                (int) args.number("stream", 1001),
                image -> Report.event("image", "session", image.sessionId()),
                image -> Report.event("image-lost", "position", image.position()))) {
            Report.event("added");
            long due = System.nanoTime();
            while (batch > 0 && System.in.available() == 0) {
                long left = batch;
                int taken;
                do {
                    taken = subscription.poll(handler, (int) left);
                    left -= taken;
                } while (taken > 0 && left > 0);
                due = Math.max(due, System.nanoTime() - cadence) + cadence;
                final long wait = Math.max(0, due - System.nanoTime());
                Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
            }
            while (!ended) {
                if (subscription.poll(handler, 256) == 0) {
                    Thread.sleep(1);
                }
            }
            Report.event("done", "messages", messages, "missed", missed);
            while (System.in.read() >= 0) {
                Thread.onSpinWait();
            }
        }
    }

    private void take(final long number, final boolean last) {
        if (expected >= 0 && number > expected) {
            missed += number - expected;
        }
        expected = number + 1;
        messages++;
        ended |= last;
    }
}
