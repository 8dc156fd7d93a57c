// SPDX-License-Identifier: Apache-2.0
package dev.penstock.bench;

import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;

/**
 * A media driver with the harness's settings; each thread has the idle strategy that is asked for.
 *
 * <pre>--dir= --threading=SHARED|DEDICATED --idle= --conductor-idle= --mtu= --term= --window=
 * --so-buffers=</pre>
 */
public final class Driver {
    private Driver() {
    }

    public static void main(final String[] args) throws InterruptedException {
        final String idle = Harness.argument(args, "idle", "backoff:10:20:1000:1000000");
        final int term = (int) Harness.number(args, "term", 16 << 20);
        final int buffers = (int) Harness.number(args, "so-buffers", 2 << 20);
        final MediaDriver.Context context = new MediaDriver.Context()
            .aeronDirectoryName(Harness.argument(args, "dir", ""))
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .threadingMode(ThreadingMode.valueOf(Harness.argument(args, "threading", "SHARED")))
            .sharedIdleStrategy(Harness.idle(idle))
            .senderIdleStrategy(Harness.idle(idle))
            .receiverIdleStrategy(Harness.idle(idle))
            .conductorIdleStrategy(Harness.idle(
                Harness.argument(args, "conductor-idle", "backoff:1:1:1000000:5000000")))
            .publicationTermBufferLength(term)
            .ipcTermBufferLength(term)
            .mtuLength((int) Harness.number(args, "mtu", 1408))
            .ipcMtuLength((int) Harness.number(args, "mtu", 1408))
            .initialWindowLength((int) Harness.number(args, "window", 1 << 20))
            .socketSndbufLength(buffers)
            .socketRcvbufLength(buffers);
        try (MediaDriver driver = MediaDriver.launch(context)) {
            Harness.say("ready", "");
            Harness.listen();
            Thread.currentThread().join();
        }
    }
}
