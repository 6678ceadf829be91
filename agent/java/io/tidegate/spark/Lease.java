package io.tidegate.spark;

import java.util.UUID;
import java.util.concurrent.TimeUnit;

/**
 * Who controls the application: one controller at a time, until it leaves or falls silent.
 *
 * <p>Every request of the controller renews the lease.
 */
final class Lease {
  private String holder;
  private String key = "";
  private String id = "";
  private long endNanos;
  private long nanos;

  /**
   * Take the lease.
   *
   * @param name a name for people, such as a host and a process id
   * @param child the id that the agent gave to its own child process, empty for others
   * @param seconds the silence after which another controller may take over
   * @return the key that the controller sends with each request, null when another one holds it
   */
  synchronized String take(String name, String child, long seconds) {
    if (holder() != null) {
      return null;
    }
    holder = name;
    id = child;
    key = UUID.randomUUID().toString();
    nanos = TimeUnit.SECONDS.toNanos(Math.max(1, Math.min(600, seconds)));
    endNanos = System.nanoTime() + nanos;
    return key;
  }

  /** Whether a key is that of the present controller; if so, its lease is renewed. */
  synchronized boolean renew(String given) {
    if (given == null || !given.equals(key) || holder() == null) {
      return false;
    }
    endNanos = System.nanoTime() + nanos;
    return true;
  }

  synchronized void leave(String given) {
    if (key.equals(given)) {
      holder = null;
    }
  }

  /** End the lease of a child process that has ended; return its name, null when it had none. */
  synchronized String ended(String child) {
    if (holder == null || child.isEmpty() || !child.equals(id)) {
      return null;
    }
    String name = holder;
    holder = null;
    return name;
  }

  /** The name of the controller, null when there is none. */
  synchronized String holder() {
    return holder != null && System.nanoTime() < endNanos ? holder : null;
  }

  /** The name of a controller that fell silent, once; null when none did. */
  synchronized String lost() {
    if (holder == null || holder() != null) {
      return null;
    }
    String name = holder;
    holder = null;
    return name;
  }
}
