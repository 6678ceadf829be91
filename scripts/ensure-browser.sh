#!/bin/sh
# The dashboard is tested in a real browser, Chromium. Without one these tests are skipped and say so,
# so its absence is a sentence, not a failure.
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Chromium is missing: installing it"
    if apt-get update -qq && apt-get install -y -qq chromium >/dev/null; then
        exit 0
    fi
fi
echo "Chromium is missing: the dashboard is not tested in a browser. Install chromium to have that."
