package io.tidegate.spark;

import static io.tidegate.spark.Internals.call;
import static io.tidegate.spark.Internals.create;
import static io.tidegate.spark.Internals.list;

import com.fasterxml.jackson.annotation.JsonIncludeProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;
import org.apache.spark.status.api.v1.TaskData;
import scala.Option;
import scala.Tuple2;

/**
 * What can be read of the application and changed in it, as JSON. It decides nothing.
 *
 * <p>Executors, jobs, stages and tasks have the form of Spark's REST interface, because its own
 * writer writes them. Only the fields that a controller reads are written: with hundreds of
 * executors, the agent spends most of its time on them.
 */
final class Application {
  private static final Pattern SECRET =
      Pattern.compile("(?i)secret|password|token|access[.]?key|credential");

  private final SparkContext context;
  final ObjectMapper json;
  private final Kubernetes kubernetes;

  Application(SparkContext context) throws Exception {
    this.context = context;
    Object writer = create("org.apache.spark.status.api.v1.JacksonMessageWriter");
    this.json = (ObjectMapper) call(writer, "mapper");
    json.addMixIn(ExecutorSummary.class, OfExecutor.class);
    json.addMixIn(JobData.class, OfJob.class);
    json.addMixIn(StageData.class, OfStage.class);
    json.addMixIn(TaskData.class, OfTask.class);
    this.kubernetes = new Kubernetes(context, json);
  }

  @JsonIncludeProperties({"id", "hostPort", "addTime", "isExcluded", "totalCores", "maxTasks",
      "activeTasks", "totalDuration", "totalShuffleWrite", "maxMemory", "memoryUsed", "diskUsed",
      "attributes"})
  private interface OfExecutor {}

  @JsonIncludeProperties({"jobId", "status", "description", "jobGroup", "jobTags", "stageIds",
      "submissionTime", "completionTime"})
  private interface OfJob {}

  @JsonIncludeProperties({"stageId", "attemptId", "status", "numTasks", "submissionTime",
      "completionTime", "executorRunTime", "executorDeserializeTime", "resultSerializationTime",
      "executorCpuTime", "inputBytes", "inputRecords"})
  private interface OfStage {}

  @JsonIncludeProperties({"taskId", "launchTime", "duration"})
  private interface OfTask {}

  /** Name, id, version and settings; secret settings are left out. */
  ObjectNode about() {
    ObjectNode about = json.createObjectNode();
    about.put("spark", context.version());
    about.put("name", context.appName());
    about.put("id", context.applicationId());
    about.put("stopped", context.isStopped());
    ObjectNode settings = about.putObject("settings");
    for (Tuple2<?, ?> pair : Internals.redacted(context.conf())) {
      String key = String.valueOf(pair._1());
      String value = String.valueOf(pair._2());
      if (!SECRET.matcher(key).find() && !value.endsWith("(redacted)")) {
        settings.put(key, value);
      }
    }
    return about;
  }

  // --- executors ----------------------------------------------------------------------------

  /** The executors and the driver; {@code isActive}: not being decommissioned or removed. */
  ArrayNode executors() throws Exception {
    Object backend = call(context, "schedulerBackend");
    ArrayNode found = json.createArrayNode();
    for (Object executor : list(call(context.statusStore(), "executorList", true))) {
      ObjectNode node = json.valueToTree(executor);
      String id = node.get("id").asText();
      boolean active = id.equals("driver") || (Boolean) call(backend, "isExecutorActive", id);
      found.add(node.put("isActive", active));
    }
    return found;
  }

  boolean requestTotal(int executors) throws Exception {
    return (Boolean)
        call(context, "requestTotalExecutors", executors, 0, Internals.emptyMap());
  }

  ArrayNode decommission(List<String> ids, String why) throws Exception {
    Object backend = call(context, "schedulerBackend");
    boolean adjustTarget = false;
    boolean triggeredByExecutor = false;
    Object pairs = Internals.decommissions(ids, why);
    return words(
        call(backend, "decommissionExecutors", pairs, adjustTarget, triggeredByExecutor));
  }

  ArrayNode kill(List<String> ids) throws Exception {
    Object backend = call(context, "schedulerBackend");
    boolean adjustTarget = false;
    boolean countFailures = false;
    boolean force = true;
    Object names = Internals.sequence(ids);
    return words(call(backend, "killExecutors", names, adjustTarget, countFailures, force));
  }

  private ArrayNode words(Object sequence) throws Exception {
    ArrayNode found = json.createArrayNode();
    for (Object item : list(sequence)) {
      found.add(String.valueOf(item));
    }
    return found;
  }

  /** The executor pods as Kubernetes lists them; null elsewhere and when it does not answer. */
  JsonNode executorPods() {
    return unless(kubernetes::executorPods);
  }

  /** Whether the driver may create pods; null elsewhere and when Kubernetes does not answer. */
  JsonNode mayCreatePods() {
    return unless(kubernetes::mayCreatePods);
  }

  // --- queries ------------------------------------------------------------------------------

  /** The running queries with all that Spark reports of them; what cannot be read is null. */
  ArrayNode queries() throws Exception {
    ArrayNode found = json.createArrayNode();
    for (Object query : Internals.activeQueries()) {
      ObjectNode node = found.addObject();
      addStatus(node, query);
      node.set("checkpoint",
          unless(() -> json.valueToTree(String.valueOf(call(query, "resolvedCheckpointRoot")))));
      node.set("beganMs", unless(() -> json.valueToTree(Internals.batchBeganMs(query))));
      node.set("trigger", unless(() -> trigger(call(query, "trigger"))));
      JsonNode limits = unless(() -> limits(query));
      node.set("limits", limits);
      // Files matter for sources with a limit of files only, and the plan is searched for them.
      boolean byFiles = limits.findValuesAsText("kind").contains("ReadMaxFiles");
      node.set("files", byFiles ? unless(() -> files(query)) : json.nullNode());
    }
    return found;
  }

  /** What the running queries do now; cheaper than {@link #queries}. */
  ArrayNode queryStatus() throws Exception {
    ArrayNode found = json.createArrayNode();
    for (Object query : Internals.activeQueries()) {
      addStatus(found.addObject(), query);
    }
    return found;
  }

  private void addStatus(ObjectNode node, Object query) throws Exception {
    node.put("id", String.valueOf(call(query, "id")));
    node.put("run", String.valueOf(call(query, "runId")));
    node.put("name", (String) call(query, "name"));
    node.set("status", unless(() -> {
      Object status = call(query, "status");
      ObjectNode seen = json.createObjectNode();
      seen.put("message", (String) call(status, "message"));
      seen.put("isDataAvailable", (Boolean) call(status, "isDataAvailable"));
      return seen.put("isTriggerActive", (Boolean) call(status, "isTriggerActive"));
    }));
  }

  private ObjectNode trigger(Object trigger) throws Exception {
    ObjectNode node = json.createObjectNode();
    node.put("kind", trigger.getClass().getSimpleName().replace("$", ""));
    node.set("intervalMs", unless(() -> json.valueToTree(call(trigger, "intervalMs"))));
    return node;
  }

  /** For each source its limits, each with the name of its class, its amount and its source. */
  private ArrayNode limits(Object query) throws Exception {
    ArrayNode found = json.createArrayNode();
    for (Object pair : list(call(query, "uniqueSources"))) {
      Tuple2<?, ?> entry = (Tuple2<?, ?>) pair;
      addLimit(found.addArray(), String.valueOf(entry._1()), entry._2());
    }
    return found;
  }

  private void addLimit(ArrayNode limits, String source, Object limit) throws Exception {
    String kind = limit.getClass().getSimpleName();
    if (kind.equals("CompositeReadLimit")) {
      for (Object part : (Object[]) call(limit, "getReadLimits")) {
        addLimit(limits, source, part);
      }
      return;
    }
    String amount = Map.of("ReadMaxRows", "maxRows", "ReadMaxFiles", "maxFiles", "ReadMaxBytes",
        "maxBytes").get(kind);
    if (amount != null) {
      ObjectNode node = limits.addObject().put("kind", kind).put("source", source);
      node.put("amount", ((Number) call(limit, amount)).doubleValue());
    }
  }

  /** Numbers of files and rows that the last batch read. */
  private JsonNode files(Object query) throws Exception {
    double files = 0;
    double rows = 0;
    Object plan = call(call(query, "lastExecution"), "executedPlan");
    for (Object leaf : list(call(plan, "collectLeaves"))) {
      Object metrics = call(leaf, "metrics");
      Option<?> count = (Option<?>) call(metrics, "get", "numFiles");
      if (count.isDefined()) {
        files += ((Number) call(count.get(), "value")).doubleValue();
        Option<?> read = (Option<?>) call(metrics, "get", "numOutputRows");
        rows += ((Number) call(read.get(), "value")).doubleValue();
      }
    }
    return files > 0 ? json.createArrayNode().add(files).add(rows) : json.nullNode();
  }

  /** The stateful operators of the last batches, by the id of the query. */
  ObjectNode stateOperators() throws Exception {
    ObjectNode found = json.createObjectNode();
    for (Object query : Internals.activeQueries()) {
      found.set(String.valueOf(call(query, "id")), unless(() -> state(query)));
    }
    return found;
  }

  private ArrayNode state(Object query) throws Exception {
    Object progress = call(query, "lastProgress");
    ArrayNode found = json.createArrayNode();
    if (progress != null) {
      for (JsonNode operator :
          json.readTree((String) call(progress, "json")).path("stateOperators")) {
        ObjectNode node = found.addObject();
        node.set("operatorName", operator.path("operatorName"));
        node.put("numShufflePartitions", operator.path("numShufflePartitions").asInt());
      }
    }
    return found;
  }

  /** The executors that have partitions of state loaded, in the order of the request. */
  ArrayNode stateLocations(JsonNode stores) throws Exception {
    String state = "org.apache.spark.sql.execution.streaming.state.";
    Map<String, Object> queries = new HashMap<>();
    for (Object query : Internals.activeQueries()) {
      queries.put(String.valueOf(call(query, "id")), query);
    }
    ArrayNode found = json.createArrayNode();
    for (JsonNode store : stores) {
      Object query = queries.get(store.get("query").asText());
      if (query == null) {
        found.addNull();
        continue;
      }
      Object streams = call(call(query, "sparkSession"), "streams");
      Object coordinator = call(streams, "stateStoreCoordinator");
      String root = call(query, "resolvedCheckpointRoot") + "/state";
      UUID run = (UUID) call(query, "runId");
      Object id = create(state + "StateStoreId", root, store.get("operator").asLong(),
          store.get("partition").asInt(), store.get("name").asText());
      Object provider = create(state + "StateStoreProviderId", id, run);
      Option<?> place = (Option<?>) call(coordinator, "getLocation", provider);
      if (place.isDefined()) {
        found.add(String.valueOf(place.get()));
      } else {
        found.addNull();
      }
    }
    return found;
  }

  // --- jobs ---------------------------------------------------------------------------------

  /** Jobs after a number, and some others by number, the newest first. */
  ObjectNode jobs(int after, int most, List<Integer> others) throws Exception {
    Object store = context.statusStore();
    ObjectNode answer = json.createObjectNode();
    ArrayNode found = answer.putArray("jobs");
    int newest = after;
    for (Object job : list(call(store, "jobsList", (Object) null))) {
      int number = ((Number) call(job, "jobId")).intValue();
      newest = Math.max(newest, number);
      if (number <= after || found.size() >= most) {
        break;
      }
      found.add(json.<JsonNode>valueToTree(job));
    }
    for (int number : others) {
      JsonNode job = unless(() -> json.valueToTree(call(store, "job", number)));
      if (!job.isNull()) { // null: dropped from Spark's store in the meantime
        found.add(job);
      }
    }
    return answer.put("newest", newest);
  }

  /** The last attempts of stages, in the order of the request; null if Spark dropped one. */
  ArrayNode stages(JsonNode numbers) throws Exception {
    Object store = context.statusStore();
    ArrayNode found = json.createArrayNode();
    for (JsonNode number : numbers) {
      found.add(unless(() -> json.valueToTree(Internals.lastStage(store, number.asInt()))));
    }
    return found;
  }

  /** The first tasks of stages by some order, falling; empty where they cannot be read. */
  ArrayNode taskLists(JsonNode wanted) throws Exception {
    Object store = context.statusStore();
    ArrayNode found = json.createArrayNode();
    for (JsonNode one : wanted) {
      ArrayNode tasks = json.createArrayNode();
      unless(() -> {
        Object first = call(store, "taskList", one.get("stage").asInt(),
            one.get("attempt").asInt(), 0, one.get("most").asInt(),
            Option.apply(one.get("order").asText()), false, new ArrayList<Object>());
        for (Object task : list(first)) {
          tasks.add(json.<JsonNode>valueToTree(task));
        }
        return tasks;
      });
      found.add(tasks);
    }
    return found;
  }

  /** Descriptions of the executions of SQL that jobs belong to; null if one is unknown. */
  ArrayNode executions(JsonNode jobs) throws Exception {
    ArrayNode found = json.createArrayNode();
    Object session = Internals.anySession();
    for (JsonNode job : jobs) {
      found.add(unless(() -> {
        Object store = call(call(session, "sharedState"), "statusStore");
        Object execution = Internals.execution(store, job.get("job").asInt(), job.get("root"));
        return json.valueToTree(execution == null ? null : call(execution, "description"));
      }));
    }
    return found;
  }

  /** Jobs that run, each with the tasks of its stages. */
  ArrayNode activeJobs() throws Exception {
    Object store = context.statusStore();
    ArrayNode found = json.createArrayNode();
    for (int number : (int[]) call(context.statusTracker(), "getActiveJobIds")) {
      JsonNode job = unless(() -> json.valueToTree(call(store, "job", number)));
      if (!job.isObject()) {
        continue; // it has just begun or ended
      }
      ArrayNode stages = ((ObjectNode) job).putArray("stages");
      for (JsonNode stage : job.get("stageIds")) {
        JsonNode seen = unless(() -> {
          Object data = Internals.lastStage(store, stage.asInt());
          ObjectNode node = json.createObjectNode();
          node.put("numTasks", (Integer) call(data, "numTasks"));
          node.put("numActiveTasks", (Integer) call(data, "numActiveTasks"));
          return node.put("numCompletedTasks", (Integer) call(data, "numCompleteTasks"));
        });
        if (seen.isObject()) {
          stages.add(seen);
        }
      }
      found.add(job);
    }
    return found;
  }

  // --- what may be missing ------------------------------------------------------------------

  private interface Reading {
    JsonNode read() throws Exception;
  }

  /** What a reading returns, null in JSON when it fails: a query may end while it is read. */
  private JsonNode unless(Reading reading) {
    try {
      JsonNode found = reading.read();
      return found == null ? json.nullNode() : found;
    } catch (Exception error) {
      return json.nullNode();
    }
  }

  boolean stopped() {
    return context.isStopped();
  }
}
