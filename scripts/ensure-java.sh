#!/bin/sh
# Spark needs a Java runtime, version 17 or later. Nothing that decides does, so its absence is a
# sentence, not a failure.
if command -v java >/dev/null 2>&1 || [ -n "${JAVA_HOME:-}" ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Java is missing: installing openjdk-17-jre-headless"
    if apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null; then
        exit 0
    fi
fi
echo "Java is missing, and everything that runs on Spark needs it: install a Java 17 runtime (for example openjdk-17-jre-headless)."
