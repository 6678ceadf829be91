package io.tidegate.spark;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tidegate's agent in the driver of a Spark application, in any language and deploy mode.
 *
 * <p>Switch it on with {@code --conf spark.plugins=io.tidegate.spark.TidegatePlugin}. The agent
 * answers a controller over HTTP; it decides nothing, and nothing that goes wrong in it stops the
 * application. See {@link Settings} for its settings.
 */
public final class TidegatePlugin implements SparkPlugin {
  private static final Logger log = LoggerFactory.getLogger(TidegatePlugin.class);

  @Override
  public DriverPlugin driverPlugin() {
    return new InDriver();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return null; // executors need nothing of it
  }

  private static final class InDriver implements DriverPlugin {
    private Agent agent;

    @Override
    public Map<String, String> init(SparkContext context, PluginContext plugin) {
      try {
        agent = Agent.start(context, Settings.read(context.conf()));
      } catch (Throwable error) {
        warn("The agent has not started; the application runs without an autoscaler", error);
      }
      return Collections.emptyMap();
    }

    @Override
    public void registerMetrics(String application, PluginContext plugin) {
      // Spark calls this as soon as the cluster manager has given the application its id.
      try {
        if (agent != null) {
          agent.announce(application);
        }
      } catch (Throwable error) {
        warn("The agent could not announce itself", error);
      }
    }

    @Override
    public void shutdown() {
      try {
        if (agent != null) {
          agent.stop();
        }
      } catch (Throwable error) {
        warn("The agent did not stop in order", error);
      }
    }

    private static void warn(String what, Throwable error) {
      // What is wrong with the settings is a sentence of its own.
      boolean said = error instanceof IllegalArgumentException && error.getMessage() != null;
      log.warn("{}: {}", what, said ? error.getMessage() : error.toString());
      log.debug(what, error);
    }
  }
}
