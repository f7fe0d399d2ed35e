# Java, and RocketMQ's jars from Maven Central. Read by scripts/rocketmq, which has say and die.

java_binary() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/java}
    [[ -x ${java:-} ]] || java=$(command -v java) || return 1
    local major
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    ((${major:-0} >= 17)) || return 1
    echo "$java"
}

# find_java: sets JAVA, to one that is installed if there is none.
find_java() {
    JAVA=$(java_binary) || {
        install_or_die "Java 17 or newer" openjdk-17-jre-headless
        JAVA=$(java_binary) || die "Java 17 or newer is needed, and was not found after its installation"
    }
}

# install_or_die WHAT PACKAGE
install_or_die() {
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        say "installing $2"
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$2"; } >&2 ||
            die "apt-get could not install $2; please install $1"
    else
        die "$1 is needed; please install it (on Debian or Ubuntu: apt-get install $2)"
    fi
}

# alone FILE COMMAND...: not beside another one under the same file, where the system can lock files.
alone() {
    if command -v flock >/dev/null; then flock "$@"; else "${@:2}"; fi
}

# fetch_jars VERSION: prints the folder of its jars, fetched if they are not there.
fetch_jars() {
    local version=$1
    local cache=${DELAYLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/delayline}
    local jars=$cache/rocketmq-$version
    if [[ ! -d $jars ]]; then
        command -v mvn >/dev/null || install_or_die "Apache Maven" maven
        mkdir -p "$cache"
        # Into a temporary folder, and renamed when complete: an aborted fetch is never taken for a complete one.
        local fetched
        fetched=$(mktemp -d "$cache/fetching-XXXXXX")
        # shellcheck disable=SC2064 # the folder is known now
        trap "rm -rf '$fetched'" EXIT
        cat >"$fetched/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>delayline</groupId><artifactId>rocketmq</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>$version</version></dependency>
  </dependencies>
</project>
POM
        say "fetching RocketMQ $version from Maven Central"
        # Several at once would write the same files of Maven's own cache, which it does not lock; and a server may fail
        # once.
        local attempt
        for attempt in 1 2 3; do
            ! alone "$cache/lock" mvn -q -B -f "$fetched/pom.xml" dependency:copy-dependencies \
                -DincludeScope=runtime -DoutputDirectory="$fetched/lib" >&2 || break
            ((attempt < 3)) || die "Maven could not fetch RocketMQ $version"
            sleep 2
        done
        # Another start may have been faster: then its folder is as good.
        mv -T "$fetched/lib" "$jars" 2>/dev/null || [[ -d $jars ]] || die "cannot write $jars"
        rm -rf "$fetched"
        trap - EXIT
    fi
    echo "$jars"
}

# classes_of JARS: prints the file for the classes that a broker of these jars loads, as this Java has them.
classes_of() {
    local java
    java=$(stat --dereference --format '%n %s %Y' "$JAVA" | cksum | cut -d ' ' -f 1)
    echo "$1-$java.jsa"
}
