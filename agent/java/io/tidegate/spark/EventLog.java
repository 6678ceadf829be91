package io.tidegate.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** The last events of the queries, numbered, until the controller has read them. */
final class EventLog {
  /** A controller that is away for long finds the newest ones. */
  private static final int MOST_EVENTS = 10_000;

  private static final long MOST_CHARACTERS = 4_000_000;

  static final class Event {
    final long number;
    final String kind;
    final String text;

    Event(long number, String kind, String text) {
      this.number = number;
      this.kind = kind;
      this.text = text;
    }
  }

  private final Deque<Event> events = new ArrayDeque<>();
  private long last = 0;
  private long characters = 0;

  synchronized void add(String kind, String text) {
    last += 1;
    events.add(new Event(last, kind, text));
    characters += text.length();
    while (events.size() > MOST_EVENTS || (characters > MOST_CHARACTERS && events.size() > 1)) {
      characters -= events.remove().text.length();
    }
    notifyAll();
  }

  /** The number of the last event, 0 before the first. */
  synchronized long last() {
    return last;
  }

  /**
   * Events after a number, oldest first; waits for the first one.
   *
   * @param after the number of the last event that the controller has
   * @param millis the longest time to wait, in milliseconds
   */
  synchronized List<Event> after(long after, long millis) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    while (last <= after) {
      long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
      if (left <= 0) {
        break;
      }
      wait(left);
    }
    List<Event> found = new ArrayList<>();
    for (Event event : events) {
      if (event.number > after) {
        found.add(event);
      }
    }
    return found;
  }
}
