package io.tidegate.spark;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The controller as a child process of the driver: started again when it dies, ended with the
 * application.
 */
final class Controller {
  private static final Logger log = LoggerFactory.getLogger(Controller.class);
  private static final long LONGEST_PAUSE_S = 60;
  private static final long STEADY_S = 120;
  private static final int WRONG_SETTINGS = 2;
  private static final int TRY_AGAIN = 1;

  private final List<String> command;
  private final Map<String, String> variables;
  private final Consumer<String> ended;
  private final Thread thread = new Thread(this::keep, "tidegate-controller");
  private Process process;
  private boolean stopped;

  /**
   * @param command the command and its arguments
   * @param variables what is added to the driver's environment
   * @param ended called with the id of a process when it has ended; the process finds its id in
   *     the variable TIDEGATE_CONTROLLER_ID
   */
  Controller(List<String> command, Map<String, String> variables, Consumer<String> ended) {
    this.command = command;
    this.variables = variables;
    this.ended = ended;
    thread.setDaemon(true);
  }

  void start() {
    thread.start();
  }

  void stop() throws InterruptedException {
    Process running;
    synchronized (this) {
      stopped = true;
      running = process;
      notifyAll();
    }
    if (running != null) {
      running.destroy();
      if (!running.waitFor(5, TimeUnit.SECONDS)) {
        running.destroyForcibly();
      }
    }
  }

  private void keep() {
    long pause = 1;
    try {
      while (true) {
        long began = System.nanoTime();
        int code = run();
        synchronized (this) {
          if (stopped) {
            return;
          }
        }
        if (code == WRONG_SETTINGS || code == 0) {
          log.warn("The controller has ended with code {}; executors stay as they are", code);
          return;
        }
        if (TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began) > STEADY_S) {
          pause = 1;
        }
        log.warn("The controller has ended with code {}; it starts again in {} s", code, pause);
        synchronized (this) {
          if (!stopped) {
            wait(TimeUnit.SECONDS.toMillis(pause));
          }
          if (stopped) {
            return;
          }
        }
        pause = Math.min(LONGEST_PAUSE_S, 2 * pause);
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  private int run() throws InterruptedException {
    try {
      ProcessBuilder builder = new ProcessBuilder(command).inheritIO();
      builder.redirectInput(ProcessBuilder.Redirect.PIPE); // closed when the driver dies
      builder.environment().putAll(variables);
      String id = UUID.randomUUID().toString();
      builder.environment().put("TIDEGATE_CONTROLLER_ID", id);
      Process started;
      synchronized (this) {
        if (stopped) {
          return 0;
        }
        started = process = builder.start();
      }
      int code = started.waitFor();
      ended.accept(id);
      return code;
    } catch (IOException error) {
      log.warn("The controller does not start: {}", error.getMessage());
      boolean missing = String.valueOf(error.getMessage()).contains("error=2,"); // no such file
      return missing ? WRONG_SETTINGS : TRY_AGAIN;
    }
  }
}
