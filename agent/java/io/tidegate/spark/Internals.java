package io.tidegate.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkConf;
import org.apache.spark.package$;
import scala.Option;
import scala.Tuple2;

/**
 * Calls to classes of Spark whose signatures or packages differ between the versions.
 *
 * <p>One jar serves Spark 3.5 (Scala 2.12) to 4.3 (Scala 2.13), so these calls find their method by
 * name and number of arguments when they run. Everything that differs by version is in this file.
 */
final class Internals {
  private static final int SEARCHED = 20;
  private static final Map<String, Method> methods = new ConcurrentHashMap<>();
  private static final Map<String, Class<?>> classes = new ConcurrentHashMap<>();

  private Internals() {}

  /** Call a public method by its name. */
  static Object call(Object target, String name, Object... given) throws Exception {
    return invoke(target.getClass(), target, name, given);
  }

  /** Call a static method, or one of a Scala object, by its name. */
  static Object callStatic(Class<?> type, String name, Object... given) throws Exception {
    return invoke(type, null, name, given);
  }

  private static Object invoke(Class<?> type, Object target, String name, Object... given)
      throws Exception {
    Method method = find(type, name, target == null, given);
    try {
      return method.invoke(target, given);
    } catch (InvocationTargetException error) {
      if (error.getCause() instanceof Exception) {
        throw (Exception) error.getCause();
      }
      throw error;
    }
  }

  private static Method find(Class<?> type, String name, boolean isStatic, Object... given)
      throws NoSuchMethodException {
    String key = type.getName() + "#" + name + "/" + given.length + (isStatic ? "s" : "");
    Method known = methods.get(key);
    if (known != null && fits(known.getParameterTypes(), given)) {
      return known;
    }
    for (Method method : type.getMethods()) {
      if (method.getName().equals(name)
          && !method.isBridge()
          && Modifier.isStatic(method.getModifiers()) == isStatic
          && fits(method.getParameterTypes(), given)) {
        method.setAccessible(true); // public, but its class may not be
        methods.put(key, method);
        return method;
      }
    }
    throw new NoSuchMethodException(type.getName() + " has no method " + name);
  }

  private static boolean fits(Class<?>[] types, Object[] given) {
    if (types.length != given.length) {
      return false;
    }
    for (int n = 0; n < types.length; n++) {
      if (given[n] != null && !boxed(types[n]).isInstance(given[n])) {
        return false;
      }
    }
    return true;
  }

  private static Class<?> boxed(Class<?> type) {
    if (type == int.class) {
      return Integer.class;
    }
    if (type == long.class) {
      return Long.class;
    }
    return type == boolean.class ? Boolean.class : type;
  }

  /** The first of several classes that this version of Spark has. */
  static Class<?> first(String... names) throws ClassNotFoundException {
    ClassLoader loader = Internals.class.getClassLoader();
    Class<?> known = classes.get(names[0]);
    if (known != null) {
      return known;
    }
    for (String name : names) {
      try {
        Class<?> found = Class.forName(name, true, loader);
        classes.put(names[0], found); // to search for one that is not there takes long
        return found;
      } catch (ClassNotFoundException error) {
        // the next one
      }
    }
    throw new ClassNotFoundException(String.join(" or ", names));
  }

  /** Create an object with the first constructor that takes the arguments. */
  static Object create(String type, Object... given) throws Exception {
    for (Constructor<?> constructor : first(type).getConstructors()) {
      if (fits(constructor.getParameterTypes(), given)) {
        return constructor.newInstance(given);
      }
    }
    throw new NoSuchMethodException(type + " has no constructor for these arguments");
  }

  /** The session that all others of the application share their state with, null before it. */
  static Object anySession() throws Exception {
    // In Spark 4 the session with a SparkContext is the classic one.
    Class<?> type =
        first("org.apache.spark.sql.classic.SparkSession", "org.apache.spark.sql.SparkSession");
    for (String name : new String[] {"getDefaultSession", "getActiveSession"}) {
      Option<?> found = (Option<?>) callStatic(type, name);
      if (found.isDefined()) {
        return found.get();
      }
    }
    return null;
  }

  /** The running queries of all sessions. */
  static Collection<?> activeQueries() throws Exception {
    Object session = anySession();
    if (session == null) {
      return List.of();
    }
    Object register = call(call(session, "sharedState"), "activeStreamingQueries");
    return ((Map<?, ?>) register).values();
  }

  /** The settings of an application as the Spark UI shows them, with secrets replaced. */
  static List<Tuple2<?, ?>> redacted(SparkConf conf) {
    List<Tuple2<?, ?>> found = new ArrayList<>();
    try {
      Object pairs = sequence(Arrays.asList((Object[]) conf.getAll()));
      for (Object pair : list(callStatic(first("org.apache.spark.util.Utils"), "redact", conf, pairs))) {
        found.add((Tuple2<?, ?>) pair);
      }
    } catch (Exception error) { // better none than a secret
      found.clear();
      for (String key : new String[] {"spark.master", "spark.executor.cores", "spark.task.cpus",
          "spark.decommission.enabled", "spark.dynamicAllocation.enabled"}) {
        if (conf.contains(key)) {
          found.add(new Tuple2<>(key, conf.get(key)));
        }
      }
    }
    return found;
  }

  /** When the batch of a query that runs now began, in Unix milliseconds; 0 when none does. */
  static long batchBeganMs(Object query) throws Exception {
    try {
      Object context = call(query, "getLatestExecutionContext"); // since Spark 4.0
      return ((Number) call(context, "currentTriggerStartTimestamp")).longValue();
    } catch (NoSuchMethodException error) {
      return ((Number) field(query, "currentTriggerStartTimestamp")).longValue();
    }
  }

  /**
   * The execution of SQL within which a job was started, null when it is unknown.
   *
   * @param root its number by the tags of the job; without it, as in Spark 3.5, the job is searched
   *     among the newest executions
   */
  static Object execution(Object store, int job, JsonNode root) throws Exception {
    long number = -1;
    if (root != null && root.isNumber()) {
      number = root.asLong();
    } else if (package$.MODULE$.SPARK_VERSION().startsWith("3.")) {
      long first = Math.max(0, ((Number) call(store, "executionsCount")).longValue() - SEARCHED);
      for (Object one : list(call(store, "executionsList", (int) first, SEARCHED))) {
        if ((Boolean) call(call(one, "jobs"), "contains", job)) {
          number = ((Number) call(one, "rootExecutionId")).longValue();
        }
      }
    }
    Option<?> found = number < 0 ? Option.empty() : (Option<?>) call(store, "execution", number);
    return found.isDefined() ? found.get() : null;
  }

  /**
   * The last attempt of a stage; raises NoSuchElementException if Spark has dropped it.
   *
   * <p>Spark's own method for it sorts all stages that it knows.
   */
  static Object lastStage(Object statusStore, int number) throws Exception {
    Object store = call(statusStore, "store");
    Class<?> type = first("org.apache.spark.status.StageDataWrapper");
    Object found = null;
    try {
      for (int attempt = 0; ; attempt++) {
        found = call(store, "read", type, new int[] {number, attempt});
      }
    } catch (NoSuchElementException error) {
      return found == null ? call(statusStore, "lastStageAttempt", number) : call(found, "info");
    }
  }

  /** A field of an object, of its class or a class that it extends. */
  static Object field(Object target, String name) throws Exception {
    for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
      for (java.lang.reflect.Field field : type.getDeclaredFields()) {
        if (field.getName().equals(name) || field.getName().endsWith("$$" + name)) {
          field.setAccessible(true);
          return field.get(target);
        }
      }
    }
    throw new NoSuchFieldException(target.getClass().getName() + " has no field " + name);
  }

  /** Elements of a collection of Scala, of either version, or of Java. */
  static List<Object> list(Object sequence) throws Exception {
    List<Object> found = new ArrayList<>();
    if (sequence instanceof Iterable) {
      for (Object item : (Iterable<?>) sequence) {
        found.add(item);
      }
      return found;
    }
    Object iterator = call(sequence, "iterator");
    scala.collection.Iterator<?> items = (scala.collection.Iterator<?>) iterator;
    while (items.hasNext()) {
      found.add(items.next());
    }
    return found;
  }

  /** A sequence of Scala with the elements of a list. */
  static Object sequence(List<?> items) throws Exception {
    return callStatic(first("org.apache.spark.api.python.PythonUtils"), "toSeq", items);
  }

  /** An empty, immutable map of Scala. */
  static Object emptyMap() throws Exception {
    return callStatic(
        first("org.apache.spark.api.python.PythonUtils"), "toScalaMap", new java.util.HashMap<>());
  }

  /** What Spark's scheduler expects for executors that are to be decommissioned. */
  static Object decommissions(List<String> ids, String why) throws Exception {
    String type = "org.apache.spark.scheduler.ExecutorDecommissionInfo";
    Object pairs = Array.newInstance(Tuple2.class, ids.size());
    for (int n = 0; n < ids.size(); n++) {
      Array.set(pairs, n, new Tuple2<>(ids.get(n), create(type, why, Option.empty())));
    }
    return pairs;
  }
}
