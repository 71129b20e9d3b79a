#!/usr/bin/env bash
# Makes .venv with Penstock and its development tools, and finds Java 17 or newer for Spark,
# or installs it with the system's package manager. Safe to run again at any time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else fail "'$*' needs root and there is no sudo; run it as root, then 'make setup' again"
    fi
}

# install_first PACKAGE...: installs the first of the packages that the package manager has.
apt_updated=""
install_first() {
    local package
    if command -v apt-get >/dev/null && [ -z "$apt_updated" ]; then
        as_root apt-get update -qq || say "apt-get update failed; going on with the package lists that are here"
        apt_updated=yes
    fi
    for package in "$@"; do
        say "trying package $package"
        if command -v apt-get >/dev/null; then
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
        elif command -v dnf >/dev/null; then as_root dnf install -y -q "$package" >&2
        elif command -v apk >/dev/null; then as_root apk add --quiet "$package" >&2
        elif command -v brew >/dev/null; then brew install --quiet "$package" >&2
        else return 1
        fi && return 0
    done
    return 1
}

is_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
        if is_python "$candidate"; then command -v "$candidate"; return 0; fi
    done
    return 1
}

make_venv() {
    if is_python .venv/bin/python; then
        say "using .venv ($(.venv/bin/python --version))"
        return
    fi
    local python version
    python=$(find_python) || fail "no Python 3.11 or newer found; install one (for example the package" \
        "python3.11 or python3.12), or say where it is: make setup PYTHON=/path/to/python3"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_first "python$version-venv" python3-venv ||
            fail "$python cannot make virtual environments; install its venv package, then 'make setup' again"
    fi
    say "making .venv with $python ($version)"
    "$python" -m venv --clear .venv
}

java_major() {
    # 'openjdk version "17.0.15"' -> 17, and the old 'java version "1.8.0_401"' -> 1
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

is_java() {
    local major
    [ -x "$1" ] && major=$(java_major "$1") && [ "${major:-0}" -ge 17 ]
}

# The order is Spark's own: JAVA_HOME, then the PATH; then where package managers put it.
find_java() {
    local candidate
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java; do
        if is_java "$candidate"; then echo "$candidate"; return 0; fi
    done
    return 1
}

make_java() {
    local java
    if ! java=$(find_java); then
        say "no Java 17 or newer found, which Spark needs; installing one"
        if command -v brew >/dev/null && ! command -v apt-get >/dev/null; then install_first openjdk@21 openjdk@17
        elif command -v apk >/dev/null; then install_first openjdk21-jre-headless openjdk17-jre-headless
        elif command -v dnf >/dev/null; then install_first java-21-openjdk-headless java-17-openjdk-headless
        else install_first openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless
        fi || true
        java=$(find_java) || fail "could not install Java; install a Java 17 or 21 runtime yourself," \
            "set JAVA_HOME to it if it is not on the PATH, then 'make setup' again"
    fi
    say "using Java $(java_major "$java") at $java"
    if [ -n "${JAVA_HOME:-}" ] && ! is_java "$JAVA_HOME/bin/java"; then
        fail "JAVA_HOME is $JAVA_HOME, which has no Java 17 or newer, and Spark would use it;" \
            "unset it or set it to $(dirname "$(dirname "$java")")"
    fi
    if ! is_java "$(command -v java || true)"; then ln -sf "$java" .venv/bin/java; fi
}

make_venv
make_java
say "installing Penstock and its development tools into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
.venv/bin/python -m penstock.cli warm-up || say "going on without the archive: Spark only starts more slowly"
say "ready: 'make demo', 'make test', or 'source .venv/bin/activate'"
