import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.SparkContext;
import org.apache.spark.Success$;
import org.apache.spark.TaskState;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.JobSucceeded$;
import org.apache.spark.scheduler.SparkListenerBlockManagerAdded;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskLocality;
import org.apache.spark.scheduler.cluster.ExecutorInfo;
import org.apache.spark.storage.BlockManagerId;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Makes a driver look like that of a large application, for benchmarks/agent.py.
 *
 * <p>It posts the events of executors, jobs, stages and tasks to the driver's listener bus, so that
 * Spark's own status store holds what it would hold with real ones. It also reads the CPU time and
 * the allocations of threads by their names.
 */
public final class AgentLoad {
  private static final int FIRST = 1_000_000; // numbers of jobs and stages; real ones are smaller
  private static final long GIB = 1L << 30;

  private final SparkContext context;
  private final int executors;
  private final int cores;
  private final Deque<Runnable> ends = new ArrayDeque<>();
  private int job = FIRST;
  private int stage = FIRST;
  private long task = FIRST;
  private volatile boolean stopped;
  private SparkListenerInterface deaf;

  public AgentLoad(SparkContext context, int executors, int cores) {
    this.context = context;
    this.executors = executors;
    this.cores = cores;
  }

  private void post(SparkListenerEvent event) {
    context.listenerBus().post(event);
  }

  /** Let the status store list the executors. */
  public void addExecutors() {
    long now = System.currentTimeMillis();
    for (int n = 0; n < executors; n++) {
      String host = "10.0." + n / 250 + "." + (n % 250 + 1);
      Map<String, String> logs = new HashMap<>();
      logs.put("stdout", "http://" + host + ":8042/node/containerlogs/container_" + n + "/stdout");
      logs.put("stderr", "http://" + host + ":8042/node/containerlogs/container_" + n + "/stderr");
      Map<String, String> attributes = new HashMap<>();
      for (String key : new String[] {"NM_HOST", "NM_PORT", "CONTAINER_ID", "CLUSTER_ID", "USER"}) {
        attributes.put(key, key.toLowerCase() + "_1700000000000_0001_01_" + n);
      }
      ExecutorInfo info =
          new ExecutorInfo(
              host, cores, PythonUtils.toScalaMap(logs), PythonUtils.toScalaMap(attributes));
      post(new SparkListenerExecutorAdded(now, id(n), info));
      BlockManagerId blocks = BlockManagerId.apply(id(n), host, 38000, Option.empty());
      post(
          new SparkListenerBlockManagerAdded(
              now, blocks, 4 * GIB, Option.apply((Object) (4 * GIB)), Option.apply((Object) 0L)));
    }
  }

  private static String id(int number) {
    return String.valueOf(1000 + number);
  }

  /** Fill the history with jobs that have ended. */
  public void history(int jobs, int tasks, String run, String name) throws Exception {
    for (int n = 0; n < jobs; n++) {
      begin(run, name, n, tasks);
      ends.remove().run();
      if (n % 4 == 0) {
        context.listenerBus().waitUntilEmpty();
      }
    }
    context.listenerBus().waitUntilEmpty();
  }

  /**
   * Run one batch of each query in every period from now on, evenly spread, in a thread.
   *
   * @param runs ids of the runs of queries
   * @param names names of the queries
   * @param seconds the period
   */
  public void start(List<String> runs, List<String> names, double seconds) {
    Thread thread = new Thread(() -> run(runs, names, seconds), "benchmark-load");
    thread.setDaemon(true);
    thread.start();
  }

  public void stop() {
    stopped = true;
  }

  private void run(List<String> runs, List<String> names, double seconds) {
    long began = System.nanoTime();
    long pauseNs = (long) (seconds * 1e9 / runs.size());
    try {
      for (long turn = 0; !stopped; turn++) {
        int query = (int) (turn % runs.size());
        int batch = (int) (turn / runs.size());
        begin(runs.get(query), names.get(query), batch, executors * cores, 200);
        begin(runs.get(query), names.get(query), batch, 200);
        while (ends.size() > 8) { // so many jobs run at any time
          ends.remove().run();
        }
        long left = began + (turn + 1) * pauseNs - System.nanoTime();
        if (left > 0) {
          Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  /** Start a job of a batch: all stages but the last end at once, the last with the job. */
  private void begin(String run, String name, int batch, int... tasks) {
    long now = System.currentTimeMillis();
    int number = job++;
    Properties properties = new Properties();
    String text = name + "<br/>id = " + run + "<br/>runId = " + run + "<br/>batch = " + batch;
    properties.setProperty("spark.job.description", text);
    properties.setProperty("spark.jobGroup.id", run);
    List<StageInfo> stages = new ArrayList<>();
    for (int count : tasks) {
      stages.add(
          new StageInfo(stage++, 0, "start at NativeMethodAccessorImpl.java:0", count, none(),
              none(), "org.apache.spark.sql.streaming.DataStreamWriter.start", null, none(),
              Option.empty(), 0, false, 0));
    }
    post(new SparkListenerJobStart(number, now, PythonUtils.toSeq(stages), properties));
    List<Runnable> last = new ArrayList<>();
    for (int n = 0; n < stages.size(); n++) {
      StageInfo info = stages.get(n);
      info.submissionTime_$eq(Option.apply((Object) now));
      post(new SparkListenerStageSubmitted(info, properties));
      Runnable end = startTasks(info, now);
      if (n < stages.size() - 1) {
        end.run();
      } else {
        last.add(end);
      }
    }
    ends.add(
        () -> {
          last.forEach(Runnable::run);
          post(new SparkListenerJobEnd(number, now + 900, JobSucceeded$.MODULE$));
        });
  }

  private Runnable startTasks(StageInfo info, long now) {
    List<TaskInfo> started = new ArrayList<>();
    for (int n = 0; n < info.numTasks(); n++) {
      int at = (int) (task % executors);
      TaskInfo one =
          new TaskInfo(task++, n, 0, n, now, id(at), "10.0.0." + at, TaskLocality.ANY(), false);
      started.add(one);
      post(new SparkListenerTaskStart(info.stageId(), 0, one));
    }
    return () -> {
      for (TaskInfo one : started) {
        long took = 200 + one.taskId() * 7919 % 400;
        one.markFinished(TaskState.FINISHED(), now + took);
        TaskMetrics metrics = TaskMetrics.empty();
        metrics.setExecutorRunTime(took);
        metrics.setExecutorCpuTime(took * 900_000);
        metrics.setResultSize(2000);
        post(
            new SparkListenerTaskEnd(
                info.stageId(), 0, "ResultTask", Success$.MODULE$, one, new ExecutorMetrics(),
                metrics));
      }
      info.completionTime_$eq(Option.apply((Object) (now + 700)));
      post(new SparkListenerStageCompleted(info));
    };
  }

  private static <T> Seq<T> none() {
    return PythonUtils.toSeq(new ArrayList<T>());
  }

  // --- measuring ----------------------------------------------------------------------------

  /** CPU time and allocated bytes of the live threads, one per line: id, name, ns, bytes. */
  public static String threads() {
    com.sun.management.ThreadMXBean bean =
        (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    StringBuilder text = new StringBuilder();
    for (long id : bean.getAllThreadIds()) {
      java.lang.management.ThreadInfo info = bean.getThreadInfo(id);
      if (info != null) {
        String name = info.getThreadName().replace('\t', ' ').replace('\n', ' ');
        text.append(id).append('\t').append(name);
        text.append('\t').append(bean.getThreadCpuTime(id));
        text.append('\t').append(bean.getThreadAllocatedBytes(id)).append('\n');
      }
    }
    return text.toString();
  }

  /** The agent's listener on the bus. */
  private SparkListenerInterface listener() {
    for (SparkListenerInterface one : context.listenerBus().listeners()) {
      if (one.getClass().getName().equals("io.tidegate.spark.QueryListener")) {
        return one;
      }
    }
    throw new IllegalStateException("the agent does not listen");
  }

  /** Take the agent's listener off the bus. */
  public void deafen() {
    deaf = listener();
    context.removeSparkListener(deaf);
  }

  /** Undo {@link #deafen}. */
  public void undeafen() {
    context.addSparkListener(deaf);
  }

  /** Let the agent hear a progress event many times. */
  public void hear(Object progress, int times) throws Exception {
    Class<?> type =
        Class.forName("org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent");
    Object event = type.getConstructors()[0].newInstance(progress);
    SparkListenerInterface listener = listener();
    for (int n = 0; n < times; n++) {
      listener.onOtherEvent((SparkListenerEvent) event);
    }
  }

  /** End the agent of the application and forget all that its classes hold. */
  public void dropAgent() throws Exception {
    deafen();
    deaf = null;
    Field plugins = SparkContext.class.getDeclaredField("_plugins");
    plugins.setAccessible(true);
    Option<?> container = (Option<?>) plugins.get(context);
    container.get().getClass().getMethod("shutdown").invoke(container.get());
    plugins.set(context, Option.empty());
    Field methods = Class.forName("io.tidegate.spark.Internals").getDeclaredField("methods");
    methods.setAccessible(true);
    ((Map<?, ?>) methods.get(null)).clear();
  }

  /** Used heap after garbage collections, in bytes. */
  public static long heap() throws InterruptedException {
    long least = Long.MAX_VALUE;
    for (int n = 0; n < 4; n++) {
      System.gc();
      Thread.sleep(200);
      least = Math.min(least, ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed());
    }
    return least;
  }
}
