#!/usr/bin/env bash
# Starts what Spark on Kubernetes asks of an image: "driver" with the arguments of spark-submit, or
# "executor" with everything in variables. Any other command is run as it is.
set -euo pipefail

case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    options=()
    # Spark numbers the options of the JVM: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
    for ((number = 0; ; number++)); do
        name="SPARK_JAVA_OPT_$number"
        [[ -n "${!name+set}" ]] || break
        options+=("${!name}")
    done
    class_path="${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}"
    class_path+="$SPARK_HOME/jars/*${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}"
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" \
        "${options[@]}" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "$class_path" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
